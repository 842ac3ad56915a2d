from anabranch.format.recent import Recent


def test_keeps_the_values_kept_last() -> None:
    recent: Recent[str, int] = Recent(limit=2)
    for key, value in (("a", 1), ("b", 2), ("a", 3), ("c", 4)):
        recent.keep(key, value)
    assert [recent.find(key) for key in "abc"] == [3, None, 4]


def test_forgets_what_is_stale() -> None:
    recent: Recent[str, int] = Recent(limit=3)
    for key in "abc":
        recent.keep(key, 1)
    recent.forget(lambda key: key != "b")
    assert [recent.find(key) for key in "abc"] == [None, 1, None]
