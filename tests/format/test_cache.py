from anabranch.format.home import BoundedCache


def test_keeps_the_values_kept_last() -> None:
    recent: BoundedCache[str, int] = BoundedCache(limit=2)
    for key, value in (("a", 1), ("b", 2), ("a", 3), ("c", 4)):
        recent.keep(key, value)
    assert [recent.find(key) for key in "abc"] == [3, None, 4]


def test_forgets_what_is_stale() -> None:
    recent: BoundedCache[str, int] = BoundedCache(limit=3)
    for key in "abc":
        recent.keep(key, 1)
    recent.forget(lambda key: key != "b")
    assert [recent.find(key) for key in "abc"] == [None, 1, None]


def test_keeps_at_most_the_capacity_and_always_the_newest() -> None:
    recent: BoundedCache[str, int] = BoundedCache(limit=10, capacity=10)
    for key, weight in (("a", 4), ("b", 4), ("a", 5), ("c", 2)):
        recent.keep(key, 1, weight=weight)
    assert ([recent.find(key) for key in "abc"], recent.weight) == ([1, None, 1], 7)
    recent.keep("d", 1, weight=11)
    assert ([recent.find(key) for key in "acd"], recent.weight, len(recent)) == ([None, None, 1], 11, 1)
    recent.forget(lambda key: key == "d")
    assert (recent.weight, len(recent)) == (0, 0)
