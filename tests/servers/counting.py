"""Counting together by conditional writes, with bare obstore."""

from obstore.exceptions import PreconditionError


def version(found) -> dict:
    """What a conditional put compares; obstore takes no None."""
    output = {"e_tag": found["e_tag"], "version": found["version"]}
    return {name: value for name, value in output.items() if value is not None}


def count(place, racer: int, rounds: int) -> None:
    """Add one to a counter, again and again."""
    store = place.store()
    for number in range(rounds):
        while True:
            found = store.get("counter")
            body = int(bytes(found.bytes()).split()[0])
            try:
                store.put(
                    "counter", f"{body + 1} {racer} {number}".encode(), mode=version(found.meta)
                )
            except PreconditionError:
                continue
            break
