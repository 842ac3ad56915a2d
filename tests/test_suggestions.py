"""Names that are suggested for mistyped ones."""

from anabranch.hints import closest, suggest


def test_the_most_similar_name_is_suggested_whatever_its_case() -> None:
    assert suggest("ORDER", ["orders", "customers"], "list them") == "did you mean 'orders'? list them"
    assert suggest("zebra", ["orders", "customers"], "list them") == "list them"


def test_tables_of_one_bucket_are_not_alike_because_of_the_bucket() -> None:
    tables = ["shop.orders", "shop.customers", "shops.orders"]
    assert closest("shop.reviews", tables, n=3) != []
    assert closest("shop.reviews", tables, n=3, by_parts=True) == []
    assert closest("shop.ordres", tables, n=1, by_parts=True) == ["shop.orders"]
    assert closest("shp.orders", tables, n=3, by_parts=True) == ["shop.orders", "shops.orders"]
    # Names without a bucket are compared as they are.
    assert closest("shop.branchs", ["branches"], n=1, by_parts=True) == ["branches"]
