"""Names that formats allow and that Zarr, C, a shell or a file system reads as something else."""

from fixtures.netcdf3_cases import classic, variable, word

# what is odd -> the name in a file, the name of the node
NAMES = {
    "a path with a backslash": (b"a\\b", "a%5Cb"),
    "backslash alone": (b"\\", "%5C"),
    "looks escaped": (b"a%2Fb", "a%2Fb"),
    "a percent sign": (b"50%", "50%"),
    "zarr's metadata": (b"zarr.json", "zarr%2Ejson"),
    "v2's array metadata": (b".zarray", ".zarray"),
    "v2's group metadata": (b".zgroup", ".zgroup"),
    "v2's attributes": (b".zattrs", ".zattrs"),
    "v2's consolidated metadata": (b".zmetadata", ".zmetadata"),
    "the folder of chunks": (b"c", "c"),
    "a chunk's number": (b"0", "0"),
    "a chunk of v2": (b"0.0", "0.0"),
    "reserved by zarr": (b"__x", "%5F_x"),
    "reserved and not UTF-8": (b"__\xff", "%5F_%FF"),
    "not UTF-8": (b"\xff\\", "%FF%5C"),
    "the group above": (b"..", "%2E%2E"),
    "dots only": (b"...", "%2E%2E%2E"),
    "composed (NFC)": ("é".encode(), "é"),
    "decomposed (NFD)": ("e\u0301".encode(), "e\u0301"),
    "upper case": (b"TEMP", "TEMP"),
    "lower case": (b"temp", "temp"),
    "a leading space": (b" temp", " temp"),
    "a trailing space": (b"temp ", "temp "),
    "a newline": (b"temp\n", "temp\n"),
    "a control character": (b"temp\x01", "temp\x01"),
    "a glob": (b"[t]*?", "[t]*?"),
    "a fragment": (b"#t", "#t"),
    "a home directory": (b"~", "~"),
    "an option": (b"-v", "-v"),
    "a drive": (b"c:", "c:"),
    "beyond the basic plane": ("\U0001f9ca".encode(), "\U0001f9ca"),
}

# names that are escaped to one and the same name, or that end at a NUL
COLLISIONS = {
    "a backslash and its escape": (b"a\\b", b"a%5Cb"),
    "a byte and its escape": (b"\xff", b"%FF"),
    "dots and their escape": (b"..", b"%2E%2E"),
}


def netcdf3(names):
    """Return a classic file with a variable of two i4 for each name: its place in the list."""

    def header(begin):
        entries = [variable(each, [0], 4, begin + 8 * at) for at, each in enumerate(names)]
        return classic([(b"n", 2)], entries)

    values = b"".join(2 * word(at) for at in range(len(names)))
    return header(len(header(0))) + values
