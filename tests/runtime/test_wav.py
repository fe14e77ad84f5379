"""Sounds are read from .wav files of every coding, and damaged files are one clear error."""

import struct
import wave
from pathlib import Path

import numpy as np
import pytest
from sounds import part, riff, tone, wav, write_wav

from xformc.errors import UserError
from xformc.format.inputs import Input
from xformc.runtime.media.reader import read_file
from xformc.runtime.media.wav import MOST_CHANNELS, read_wav

SOUND = Input("vectors", axes={"hop": 80}, rate=8000)
FORM = struct.pack("<HHIIHH", 1, 1, 8000, 16000, 2, 16)
PCM_8 = struct.pack("<HHIIHH", 1, 1, 8000, 8000, 1, 8)


@pytest.mark.parametrize("extensible", [False, True])
@pytest.mark.parametrize(("code", "bits"), [(1, 16), (1, 24), (1, 32), (3, 32)])
def test_every_coding_gives_the_samples_within_its_rounding(
    tmp_path: Path, code: int, bits: int, extensible: bool
) -> None:
    samples = tone(1000)
    path = write_wav(tmp_path / "a.wav", samples, code=code, bits=bits, extensible=extensible)
    rate, found = read_wav(path)
    assert (rate, found.dtype) == (8000, np.float32)
    np.testing.assert_allclose(found, samples, rtol=0, atol=2.0**-24 if code == 3 else 2.0**-bits)


def test_samples_are_those_that_the_standard_library_writes(tmp_path: Path) -> None:
    numbers = np.array([-32768, -1, 0, 1, 32767], np.int16)
    with wave.open(str(tmp_path / "a.wav"), "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes(numbers.tobytes())
    rate, found = read_wav(tmp_path / "a.wav")
    assert rate == 16000
    np.testing.assert_array_equal(found, numbers / np.float32(32768))


def test_channels_are_mixed_to_their_mean(tmp_path: Path) -> None:
    both = np.stack([tone(50), tone(50, pitch=100)], axis=1)
    _, found = read_wav(write_wav(tmp_path / "a.wav", both, code=3, bits=32))
    np.testing.assert_array_equal(found, both.astype(np.float64).mean(1).astype(np.float32))


def test_positions_have_a_hop_of_samples_and_the_last_is_padded(tmp_path: Path) -> None:
    samples = tone(170)
    found = read_file(write_wav(tmp_path / "a.WAV", samples, code=3, bits=32), "wave", SOUND)
    assert found.shape == (3, 80)
    np.testing.assert_array_equal(found.reshape(-1)[:170], samples)
    assert not found.reshape(-1)[170:].any()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it is empty"),
        (b"text", "it does not begin with RIFF and WAVE"),
        (b"RIFF....WAVE", "it has no samples"),
        (riff(part(b"fmt ", FORM)), "it has no samples"),
        (riff(part(b"data", b"ab")), "its samples come before their format"),
        (riff(part(b"fmt ", FORM[:14])), "its format has 14 bytes"),
        (wav(tone(10))[:-1], "a part has 20 bytes, and 19 follow"),
        (riff(part(b"fmt ", FORM), b"data\xff\xff\xff\x7f"), "a part has 2,147,483,647 bytes, and 0 follow"),
        (riff(part(b"fmt ", FORM), part(b"data", b"abc")), "3 bytes are no whole number of samples of 2 bytes"),
        (riff(part(b"fmt ", FORM), part(b"data", b"")), "it has no samples"),
        (
            riff(part(b"fmt ", PCM_8), part(b"data", b"ab")),
            "samples of coding 1 with 8 bits, not PCM of 16, 24 or 32 bits or float of 32",
        ),
        (
            riff(part(b"fmt ", struct.pack("<HHIIHH", 1, 65535, 8000, 0, 65534, 16))),
            "65535 channels, 8,000 samples a second, 65534 bytes",
        ),
        (riff(part(b"fmt ", struct.pack("<HHIIHH", 1, 1, 0, 0, 2, 16))), "1 channels, 0 samples a second, 2 bytes"),
        (
            riff(part(b"fmt ", struct.pack("<HHIIHH", 1, 1, 8000, 0, 4, 16))),
            "1 channels, 8,000 samples a second, 4 bytes",
        ),
        (wav(np.array([0.0, np.nan], np.float32), code=3, bits=32), "a sample is not a finite number"),
    ],
)  # fmt: skip
def test_damaged_file_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.wav").write_bytes(content)
    with pytest.raises(UserError) as caught:
        read_file(tmp_path / "a.wav", "wave", SOUND)
    assert caught.value.message == f"not a .wav file that can be read: {message}"
    assert caught.value.place == str(tmp_path / "a.wav")
    nothing = message in ("it is empty", "it has no samples", "a sample is not a finite number")
    assert (caught.value.hint is None) == nothing  # which no conversion would help
    assert MOST_CHANNELS < 65535


def test_wrong_rate_is_refused_with_a_way_to_convert_it(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has 44,100 samples a second; this model takes 8,000") as caught:
        read_file(write_wav(tmp_path / "a.wav", tone(10), rate=44100), "wave", SOUND)
    assert caught.value.hint == "convert it, for example: ffmpeg -i a.wav -ar 8000 converted.wav"


def test_file_that_is_missing_has_another_suffix_or_is_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read: No such file"):
        read_file(tmp_path / "b.wav", "wave", SOUND)
    with pytest.raises(UserError, match=r"'wave' is read from a .wav file"):
        read_file(tmp_path / "b.mp3", "wave", SOUND)
    with pytest.raises(UserError, match="not the name of a file"):
        read_file(Path("\0.wav"), "wave", SOUND)
    short = Input("vectors", axes={"hop": 80}, rate=8000, longest=2)
    with pytest.raises(UserError, match="3 positions; this engine takes at most 2"):
        read_file(write_wav(tmp_path / "c.wav", tone(161)), "wave", short)


def test_any_bytes_are_samples_or_one_error(tmp_path: Path) -> None:
    random, path = np.random.default_rng(5), tmp_path / "a.wav"
    seeds = [wav(tone(9)), wav(tone(9), bits=24, extensible=True), wav(tone(9), code=3, bits=32)]
    for _ in range(500):
        content = bytearray(seeds[random.integers(len(seeds))])
        for _ in range(random.integers(1, 5)):
            content[random.integers(len(content))] = int(random.choice(np.array([0, 1, 255, random.integers(256)])))
        path.write_bytes(content[: random.integers(len(content) // 2, len(content) + 1)])
        try:
            rate, samples = read_wav(path)
        except UserError as error:
            assert error.message.startswith("not a .wav file that can be read: ")
            continue
        assert rate > 0 and np.isfinite(samples).all() and 0 < len(samples) < len(content)
