"""The jar of the catalog is part of the installation, and is made for the Spark that is installed."""

import zipfile

import pyspark

from anabranch.spark.session import CATALOG_CLASS, find_jar


def test_the_jar_is_made_for_the_installed_spark() -> None:
    jar = find_jar()
    assert jar is not None, "run scripts/build_catalog.py"
    minor = ".".join(pyspark.__version__.split(".")[:2])
    assert jar.name == f"anabranch-spark-{minor}.jar"
    with zipfile.ZipFile(jar) as archive:
        assert f"{CATALOG_CLASS.replace('.', '/')}.class" in archive.namelist()
