# Every recipe runs from a clean clone: uv makes the environment. `just` alone lists them.

[private]
default:
    @just --list --unsorted

# Make the development environment
setup:
    uv sync

# Build a virtual repository over real ocean-model files and open it
demo *args:
    uv run icevirt demo {{args}}

# Install the object-store servers of the tests that are not Python packages (needs Node)
servers:
    uv run python tests/servers/azurite.py

# Run the fast tests, or those that the arguments choose
test *args:
    uv run pytest {{args}}

# Check style and formatting
lint:
    uv run ruff check
    uv run ruff format --check

# Put all code into the standard format
format:
    uv run ruff check --fix
    uv run ruff format

# Check types
types:
    uv run mypy

# Compare icechunk's names with ours again, after a change of the public interface
api-table:
    uv run python docs/make_api_table.py

# Run 64 programs of others, build what they write, and write docs/writers.md (installs into a temporary folder; needs
# the Debian packages that docs/writers.toml names)
writers *names:
    uv run python docs/make_writers.py {{names}}

# Let zarr-python, tensorstore, ome-zarr, GDAL and tifffile write files, build them, and write the tables of docs/sources.md
sources:
    uv run python docs/make_sources.py
    uv run python docs/make_tiff_sources.py

# Build the archives of tests/archives, compare them with xarray, and write docs/archives.md
archives:
    ICEVIRT_WRITE_PAGE=1 HYPOTHESIS_PROFILE=nightly uv run pytest -n 0 tests/archives/test_archives.py

# Write the stub of the public names again, after a change of their table
stub:
    uv run python docs/make_stub.py

# Build the documentation site in build/site/html, strictly: no warning, no link that leads nowhere
site:
    uv run --group docs python docs/site/build.py

# Build wheel and sdist into dist/, twice to the same bytes, and check their metadata and contents
dist:
    uv run --group release python .ci/release.py

# Compare the conda recipe with pyproject.toml, as rattler-build reads it
conda:
    uv run --group release python .ci/conda_recipe.py

# Do all of a release (RELEASING.md) but publish it: build, check, install the wheel alone, read with it
release-dry-run: dist conda
    uv run python .ci/reader_only.py

# Make the golden repositories, catalog and recipe of this version, once (fixtures/golden)
golden:
    uv run python fixtures/golden/generate.py

# Install the wheel in dist/ into empty environments (Python 3.12 to 3.14, lowest and newest versions, three sets of
# extras), and read and build there; --sdist: run the tests of the sdist, too
installations *args:
    uv run python .ci/installations.py {{args}}

# Try the lowest version of each package that pyproject.toml allows, on Python 3.12: scan, build, read
lowest:
    uv run python .ci/lowest_versions.py

# Run tests (a sample, or those that the arguments choose) with the newest releases and pre-releases of icechunk, zarr,
# xarray, VirtualiZarr, h5py, pyspark and numpy, and compare icechunk's names again
newest *args:
    uv run python .ci/newest.py {{args}}

# Attack all readers with damaged files, zarr.json, config.yaml and containers, for an hour each
fuzz seconds="3600":
    ICEVIRT_FUZZ_SECONDS={{seconds}} uv run pytest --timeout 0 -o faulthandler_timeout=0 tests/unit/wire/test_hostile.py tests/legacy/test_hostile_legacy.py tests/unit/wire/test_hostile_config.py tests/access/hostile/test_hostile_documents.py tests/access/hostile/test_credentials.py

# Let 8 writers race with 100 commits each on every storage (the tests have 4)
races commits="100":
    ICEVIRT_RACE_COMMITS={{commits}} uv run pytest --timeout 0 -o faulthandler_timeout=0 --durations 0 tests/repo/faults/test_races.py

# Scan 5,000 files on Spark, one in a hundred of them poisonous (the tests have 200)
poison files="5000":
    ICEVIRT_POISON_FILES={{files}} uv run pytest -s --timeout 0 -o faulthandler_timeout=0 tests/tasks/test_poison.py

# Kill driver, workers and all of Spark 30 times during a scan (the tests do so twice)
deaths count="30":
    ICEVIRT_SCAN_DEATHS={{count}} uv run pytest -s --timeout 0 -o faulthandler_timeout=0 tests/execution/test_deaths.py

# Kill driver, JVM, executors and workers during 50 builds (the tests do so during one)
build-deaths builds="50":
    ICEVIRT_BUILD_DEATHS={{builds}} uv run pytest -s --timeout 0 -o faulthandler_timeout=0 tests/execution/test_build_deaths.py

# Kill the driver of streams in every phase of a batch, with two sources, old and new checkpoints
stream-deaths:
    ICEVIRT_STREAM_DEATHS=1 uv run pytest -s --timeout 0 -o faulthandler_timeout=0 tests/execution/test_stream_deaths.py

# Read lists of files and references from tables of Delta Lake and Iceberg, by their own libraries
lakes:
    uv run --with deltalake --with 'pyiceberg[sql-sqlite]' pytest -n 0 --tier all tests/spark/test_lakes.py

# Run the programs of docs/neighbors.md, those too that are too large for every environment
neighbors:
    ICEVIRT_NEIGHBORS=1 uv run --with xarray-beam --with titiler-xarray --with ndpyramid pytest -n 0 --tier all tests/docs/test_neighbors_page.py

# Run what surprised us in other libraries, each in its own environment: one table (findings/README.md)
findings *names:
    uv run --no-project python findings/run.py {{names}}

# Run icechunk's own tests of a checkout with both clients, and write what fails into docs/icechunk-programs.md
icechunk-suite path *args:
    uv run --with 'boto3-stubs[s3]' --with pytest-asyncio --with termcolor python .ci/icechunk_suite.py {{path}} {{args}}

# Read a build by thirteen readers, and write the tables of docs/readers.md (needs Node, R and r-cran-reticulate)
readers:
    uv run python tests/readers/javascript.py
    ICEVIRT_WRITE_PAGE=1 uv run pytest -n 0 --tier all tests/readers

# Kill the driver that writes references at five moments, into an old and a new repository
reference-deaths:
    ICEVIRT_REFERENCE_DEATHS=1 uv run pytest -s --timeout 0 -o faulthandler_timeout=0 tests/execution/test_reference_deaths.py

# Kill an executor of three in the middle of a build, with speculation on
executor-loss:
    ICEVIRT_EXECUTOR_LOSS=1 uv run pytest --tier all tests/execution/test_executor_loss.py

# Build 1,000 times in one process, and look for files, threads and processes that stay
leaks builds="1000":
    ICEVIRT_LEAK_BUILDS={{builds}} uv run pytest -s --timeout 0 -o faulthandler_timeout=0 tests/execution/test_leaks.py

# Send signals at every line of the code that writes a repository (the tests take every 75th)
signals:
    ICEVIRT_SIGNALS=all uv run pytest --timeout 0 -o faulthandler_timeout=0 tests/repo/faults/test_signals.py

# Put 500 hostile values into the tables of a catalog, and flip its bits (the tests take every 17th)
tamper:
    ICEVIRT_TAMPER=1 uv run pytest --timeout 0 -o faulthandler_timeout=0 tests/catalog/test_tampered_catalogs.py

# Let 2,000 random sessions fork, write and merge, and as many dask arrays be written in blocks
random-forks count="2000":
    ICEVIRT_FORKS={{count}} uv run pytest --timeout 0 -o faulthandler_timeout=0 tests/repo/test_random_forks.py tests/access/test_dask_arrays.py

# Rebuild 200 groups that others commit to between builds (the tests do 4)
keeping examples="200":
    ICEVIRT_KEEPING_EXAMPLES={{examples}} uv run pytest --timeout 0 -o faulthandler_timeout=0 tests/api/test_keeping_model.py

# Build 3,000 random archives, run all that refusals propose, and compare with xarray and what they hold (the tests do the plainest of 60 with each oddity)
random-archives count="3000":
    ICEVIRT_ARCHIVES={{count}} uv run pytest -n 0 --timeout 0 tests/archives/test_random_archives.py

# Run the tests of Spark on Spark 3.5 to the newest, and write what works into docs/clusters.md
spark-versions *args:
    uv run python .ci/spark_versions.py {{args}}

# Build on a cluster of two workers that share nothing, and with ten usual mistakes (namespaces)
clusters *args:
    ICEVIRT_CLUSTERS=1 ICEVIRT_WRITE_PAGE=1 uv run pytest -n 0 -p no:randomly --timeout 0 -o faulthandler_timeout=0 tests/clusters {{args}}

# Measure a build of 400 files against VirtualiZarr with icechunk
bench *args:
    uv run python bench/build_archive.py {{args}}

# Measure short forms of all benchmarks beside the peers: one table (--write: into docs/performance.md)
perf *args:
    uv run python bench/perf.py {{args}}

# Kill processes that update a repository 60 times (the tests do so twice)
update-kills count="60":
    ICEVIRT_UPDATE_KILLS={{count}} uv run pytest --tier all -n 0 --timeout 0 -o faulthandler_timeout=0 tests/living/test_kills.py

# Let an archive live for 200 steps, twenty minutes (tests/living/test_year.py)
living-year:
    ICEVIRT_LIVING_STEPS=200 uv run pytest --tier all -n 0 --timeout 0 -o faulthandler_timeout=0 tests/living/test_year.py

# Let 100 archives live, move and go back in history for 40 steps each (the tests do 3 for 12)
living-histories count="100":
    ICEVIRT_HISTORIES={{count}} ICEVIRT_HISTORY_STEPS=40 uv run pytest --tier all -n 0 --timeout 0 -o faulthandler_timeout=0 tests/living/test_histories.py

# Print the size of the code, the length of its chains of imports, and what it repeats
house *args:
    uv run python .ci/house.py {{args}}

# Run all long forms, a night's work
nightly: living-year living-histories update-kills fuzz races poison deaths build-deaths stream-deaths reference-deaths lakes neighbors readers executor-loss leaks signals tamper keeping random-archives random-forks spark-versions clusters dist (installations "--sdist") newest
    HYPOTHESIS_PROFILE=nightly uv run pytest --tier all -n 2 --timeout 0 -o faulthandler_timeout=0

# Run everything that .ci/run runs: the fast tests, then the others beside all checks (docs/testing.md)
ci:
    #!/usr/bin/env bash
    set -euo pipefail
    mkdir -p build
    CI=true uv run pytest
    # what the second tier needs, side by side: servers, and an archive of Spark's classes
    just servers >build/servers.log 2>&1 & servers=$!
    uv run python tests/java_classes.py >build/java.log 2>&1 || cat build/java.log
    wait "$servers" || { cat build/servers.log; exit 1; }
    # the second tier waits for servers and Spark: the checks take what it leaves of the processors,
    # and find their packages installed, so that none is written below running tests
    uv sync --quiet --group docs --group release
    nice -n 4 just checks >build/checks.log 2>&1 & checks=$!
    passed=true
    CI=true uv run pytest --tier=rest || passed=false
    wait "$checks" || passed=false
    cat build/checks.log
    $passed

# Run all checks that are no tests: style, types, a release that is not published, lowest versions, site
checks: lint types release-dry-run lowest site
