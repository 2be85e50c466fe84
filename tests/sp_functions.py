def mapper(task, number):
    for to in range(3):
        yield to, bytes([task, number])
def reducer(task, rows):
    return task, sorted(rows)
