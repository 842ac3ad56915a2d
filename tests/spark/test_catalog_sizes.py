"""Large values on their way to Spark: batches of bounded size."""

import pyarrow as pa

from anabranch.spark.gateway.requests import Request


class FrameSizes:
    """Notes the size of each Arrow batch instead of sending it."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def send_arrow(self, piece: pa.Buffer) -> None:
        self.sizes.append(piece.size)

    def send_end(self) -> None:
        pass


def test_rows_are_sent_in_pieces_of_bounded_size() -> None:
    values = ["x" * (40 << 20), *["y" * (1 << 20)] * 100, "z" * (100 << 20), "", None]
    batch = pa.record_batch([pa.array(values)], names=["v"])
    sent = FrameSizes()
    Request({}, sent, lambda *_args, **_kwargs: None).send_rows(iter([batch]), batch.schema)  # type: ignore[arg-type]
    assert sum(sent.sizes) > 240 << 20
    assert max(sent.sizes) < 101 << 20  # one value cannot be cut
    assert sorted(sent.sizes)[-2] < 65 << 20
