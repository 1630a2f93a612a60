"""The converter of weights: what it writes, what it refuses, and that the model says the same in both forms."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import convert_ct2_to_hf
import numpy as np
import pytest
import soundfile
import torch
from convert_ct2_to_hf import ConversionError, Ct2Model, Vocabulary, convert, generation_config, read_model
from faster_whisper import WhisperModel
from numpy.typing import NDArray
from safetensors.numpy import load_file
from transformers import WhisperForConditionalGeneration, WhisperProcessor

from sooner.workload.recordings import Clip, clip_named, clips

Array = NDArray[Any]

BASE = Path(__file__).parents[1] / ".venv-vllm" / "whisper-base"
SAMPLE_RATE_HZ = 16_000
WIDTH, MEL_BINS, HEADS, FEED_FORWARD, FRAMES, POSITIONS = 4, 3, 2, 8, 1500, 448
DTYPE_IDS = {"float32": 0, "int8": 1, "int16": 2, "int32": 3, "float16": 4}
BFLOAT16_ID = 5
TOKENS = (
    "a",
    "b",
    "<|endoftext|>",
    "<|startoftranscript|>",
    "<|en|>",
    "<|fr|>",
    "<|translate|>",
    "<|transcribe|>",
    "<|startoflm|>",
    "<|startofprev|>",
    "<|nospeech|>",
    "<|notimestamps|>",
    *(f"<|{0.02 * step:.2f}|>" for step in range(1501)),
)


# --- a Whisper of a few numbers, as CTranslate2 would write it --------------------------------------------


def _numbers(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float16)


def _tiny_records() -> dict[str, Array]:
    records: dict[str, Array] = {
        "encoder/conv1/weight": _numbers(WIDTH, MEL_BINS, 3),
        "encoder/conv1/bias": _numbers(WIDTH),
        "encoder/conv2/weight": _numbers(WIDTH, WIDTH, 3),
        "encoder/conv2/bias": _numbers(WIDTH),
        "encoder/position_encodings/encodings": _numbers(FRAMES, WIDTH),
        "decoder/position_encodings/encodings": _numbers(POSITIONS, WIDTH),
        "decoder/embeddings/weight": _numbers(len(TOKENS), WIDTH),
        "decoder/scale_embeddings": np.array(0, np.int8),
    }
    for side in ("encoder", "decoder"):
        records[f"{side}/num_heads"] = np.array(HEADS, np.int16)
        records |= _norm(f"{side}/layer_norm")
        records |= _layer(f"{side}/layer_0", is_decoder=side == "decoder")
    return records


def _layer(name: str, *, is_decoder: bool) -> dict[str, Array]:
    rows = {"self_attention/linear_0": 3 * WIDTH, "self_attention/linear_1": WIDTH, "ffn/linear_0": FEED_FORWARD}
    norms = ["self_attention", "ffn"]
    if is_decoder:
        rows |= {"attention/linear_0": WIDTH, "attention/linear_1": 2 * WIDTH, "attention/linear_2": WIDTH}
        norms.append("attention")
    records: dict[str, Array] = {f"{name}/ffn/linear_1/weight": _numbers(WIDTH, FEED_FORWARD)}
    records[f"{name}/ffn/linear_1/bias"] = _numbers(WIDTH)
    for part, num_rows in rows.items():
        records[f"{name}/{part}/weight"] = _numbers(num_rows, WIDTH)
        records[f"{name}/{part}/bias"] = _numbers(num_rows)
    records[f"{name}/self_attention/linear_0/bias"][WIDTH : 2 * WIDTH] = 0  # the key has no bias
    if is_decoder:
        records[f"{name}/attention/linear_1/bias"][:WIDTH] = 0
    for part in norms:
        records |= _norm(f"{name}/{part}/layer_norm")
    return records


def _norm(name: str) -> dict[str, Array]:
    return {f"{name}/gamma": _numbers(WIDTH), f"{name}/beta": _numbers(WIDTH)}


def _text(text: str) -> bytes:
    data = text.encode() + b"\0"
    return struct.pack("<H", len(data)) + data


def _record(name: str, array: Array) -> bytes:
    head = _text(name) + struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape)
    return head + struct.pack("<BI", DTYPE_IDS[array.dtype.name], array.nbytes) + array.tobytes()


@dataclass
class Source:
    """A CTranslate2 folder about to be written; tests damage it first."""

    folder: Path
    version: int = 6
    spec: str = "WhisperSpec"
    records: dict[str, Array] = field(default_factory=_tiny_records)
    aliases: dict[str, str] = field(
        default_factory=lambda: {"decoder/projection/weight": "decoder/embeddings/weight"}
    )
    tokens: tuple[str, ...] = TOKENS

    def model_bytes(self) -> bytes:
        head = struct.pack("<I", self.version) + _text(self.spec) + struct.pack("<II", 3, len(self.records))
        body = b"".join(_record(name, array) for name, array in self.records.items())
        tail = struct.pack("<I", len(self.aliases))
        return head + body + tail + b"".join(_text(name) + _text(to) for name, to in self.aliases.items())

    def write(self) -> Path:
        self.folder.mkdir()
        (self.folder / "model.bin").write_bytes(self.model_bytes())
        (self.folder / "vocabulary.txt").write_text("\n".join(self.tokens) + "\n", encoding="utf-8")
        config = {"alignment_heads": [[0, 1]], "suppress_ids": [1], "suppress_ids_begin": [0, 2]}
        (self.folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        added = [{"id": 2, "content": "<|endoftext|>", **flags, "special": True}]
        tokenizer = {"version": "1.0", "added_tokens": added}
        (self.folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
        return self.folder


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(tmp_path / "ct2")


def _read_json(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


# --- what it writes ---------------------------------------------------------------------------------------


def test_fused_projections_come_apart(source: Source, tmp_path: Path) -> None:
    convert(source.write(), tmp_path / "hf")
    weights = load_file(tmp_path / "hf" / "model.safetensors")
    fused = source.records["decoder/layer_0/self_attention/linear_0/weight"]
    names = [f"model.decoder.layers.0.self_attn.{part}_proj.weight" for part in "qkv"]
    assert np.array_equal(np.concatenate([weights[name] for name in names]), fused)
    fused = source.records["decoder/layer_0/attention/linear_1/bias"]
    assert np.array_equal(weights["model.decoder.layers.0.encoder_attn.v_proj.bias"], fused[WIDTH:])
    assert "model.decoder.layers.0.encoder_attn.k_proj.bias" not in weights


def test_transformers_finds_every_weight(source: Source, tmp_path: Path) -> None:
    convert(source.write(), tmp_path / "hf")
    _, report = WhisperForConditionalGeneration.from_pretrained(tmp_path / "hf", output_loading_info=True)
    assert not any(report.values()), report


def test_sizes_and_tokens_are_read_off(source: Source, tmp_path: Path) -> None:
    written = convert(source.write(), tmp_path / "hf")
    assert all(path.is_file() for path in written)
    config = _read_json(tmp_path / "hf" / "config.json")
    assert (config["d_model"], config["num_mel_bins"], config["encoder_ffn_dim"]) == (
        WIDTH,
        MEL_BINS,
        FEED_FORWARD,
    )
    assert (config["encoder_layers"], config["decoder_attention_heads"], config["dtype"]) == (1, HEADS, "float16")
    assert config["eos_token_id"] == TOKENS.index("<|endoftext|>")
    assert _read_json(tmp_path / "hf" / "preprocessor_config.json")["chunk_length"] == 30
    added = _read_json(tmp_path / "hf" / "tokenizer.json")["added_tokens"]
    assert [token["content"] for token in added] == ["<|endoftext|>", *TOKENS[-1501:]]


def test_a_newer_vocabulary_file_is_read(source: Source) -> None:
    folder = source.write()
    (folder / "vocabulary.txt").rename(folder / "old")
    (folder / "vocabulary.json").write_text(json.dumps(TOKENS), encoding="utf-8")
    assert Vocabulary.read(folder).tokens == TOKENS


@pytest.mark.parametrize(("num_tokens", "is_multilingual"), [(51_864, False), (51_865, True)])
def test_only_a_multilingual_model_takes_languages(num_tokens: int, is_multilingual: bool) -> None:
    fillers = tuple(f"word {index}" for index in range(num_tokens - len(TOKENS)))
    model = Ct2Model(revision=3, variables=_tiny_records(), aliases={})
    suppressed = {"alignment_heads": [], "suppress_ids": [], "suppress_ids_begin": []}
    config = generation_config(model, Vocabulary(fillers + TOKENS), suppressed)
    assert config["is_multilingual"] is is_multilingual
    languages = {"<|en|>": len(fillers) + 4, "<|fr|>": len(fillers) + 5}
    assert config.get("lang_to_id") == (languages if is_multilingual else None)


# --- what it refuses --------------------------------------------------------------------------------------


def _another_version(source: Source) -> None:
    source.version = 7


def _another_spec(source: Source) -> None:
    source.spec = "TransformerSpec"


def _missing_record(source: Source) -> None:
    del source.records["encoder/conv1/bias"]


def _quantised(source: Source) -> None:
    name = "encoder/layer_0/ffn/linear_0/weight"
    source.records[name] = source.records[name].astype(np.int8)


def _bias_for_the_key(source: Source) -> None:
    source.records["encoder/layer_0/self_attention/linear_0/bias"][WIDTH] = 1


def _rows_that_do_not_divide(source: Source) -> None:
    source.records["encoder/layer_0/self_attention/linear_0/weight"] = _numbers(3 * WIDTH + 1, WIDTH)


def _untied_projection(source: Source) -> None:
    source.aliases.clear()


def _foreign_vocabulary(source: Source) -> None:
    source.tokens = tuple(f"word {index}" for index in range(len(TOKENS)))


def _token_too_few(source: Source) -> None:
    source.tokens = TOKENS[1:]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_another_version, "format version 7"),
        (_another_spec, "holds a TransformerSpec"),
        (_missing_record, "no record 'encoder/conv1/bias'"),
        (_quantised, "is int8"),
        (_bias_for_the_key, "bias for the key"),
        (_rows_that_do_not_divide, "13 rows, which 3 do not divide"),
        (_untied_projection, "not tied"),
        (_foreign_vocabulary, "vocabulary has no"),
        (_token_too_few, "1513 embeddings, but 1512 tokens"),
    ],
)
def test_a_model_of_another_kind_is_refused(
    source: Source, tmp_path: Path, damage: Callable[[Source], None], message: str
) -> None:
    damage(source)
    folder = source.write()
    with pytest.raises(ConversionError, match=message):
        convert(folder, tmp_path / "hf")
    assert not (tmp_path / "hf").exists()


def _patch(data: bytes, name: str, offset: int, patch: bytes) -> bytes:
    """Write over what stands ``offset`` bytes behind a record's name."""
    at = data.index(_text(name)) + len(_text(name)) + offset
    return data[:at] + patch + data[at + len(patch) :]


@pytest.mark.parametrize(
    ("offset", "patch", "message"),
    [
        (1, struct.pack("<I", WIDTH + 1), r"is not \(5,\) numbers"),
        (5, struct.pack("<B", BFLOAT16_ID), "dtype 5"),
        (6, struct.pack("<I", 1 << 30), "holds 1073741824 bytes"),
        (6, struct.pack("<I", 2 * WIDTH + 1), "holds 9 bytes"),
    ],
)
def test_a_record_that_contradicts_itself_is_refused(
    source: Source, offset: int, patch: bytes, message: str
) -> None:
    folder = source.write()
    damaged = _patch(source.model_bytes(), "encoder/conv1/bias", offset, patch)
    (folder / "model.bin").write_bytes(damaged)
    with pytest.raises(ConversionError, match=message):
        read_model(folder / "model.bin")


def test_a_name_that_is_no_text_is_refused(source: Source) -> None:
    folder = source.write()
    (folder / "model.bin").write_bytes(source.model_bytes().replace(b"conv1/bias", b"conv1/\xff\xff\xff\xff"))
    with pytest.raises(ConversionError, match="no complete CTranslate2 model"):
        read_model(folder / "model.bin")


def test_a_file_cut_short_anywhere_is_refused(source: Source) -> None:
    folder, data = source.write(), source.model_bytes()
    for num_bytes in (*range(200), *range(200, len(data), 997), len(data) - 1):
        (folder / "model.bin").write_bytes(data[:num_bytes])
        with pytest.raises(ConversionError, match="cut short"):
            read_model(folder / "model.bin")


def test_a_folder_without_vocabulary_is_refused(source: Source, tmp_path: Path) -> None:
    folder = source.write()
    (folder / "vocabulary.txt").unlink()
    with pytest.raises(ConversionError, match=r"neither vocabulary\.json nor vocabulary\.txt"):
        convert(folder, tmp_path / "hf")


def test_the_tool_says_why_it_fails(source: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source.spec = "TransformerSpec"
    assert convert_ct2_to_hf.main([str(source.write()), str(tmp_path / "hf")]) == 1
    assert "convert_ct2_to_hf: model.bin holds a TransformerSpec" in capsys.readouterr().err
    assert convert_ct2_to_hf.main([str(tmp_path / "nothing"), str(tmp_path / "hf")]) == 1
    assert "nothing" in capsys.readouterr().err


# --- the real model ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reference() -> WhisperModel:
    return WhisperModel(str(BASE / "ct2"), device="cpu", compute_type="float32")


@pytest.fixture(scope="module")
def converted() -> WhisperForConditionalGeneration:
    return WhisperForConditionalGeneration.from_pretrained(BASE / "hf", dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def processor() -> WhisperProcessor:
    return WhisperProcessor.from_pretrained(BASE / "hf")


def _features(clip: Clip, processor: WhisperProcessor) -> torch.Tensor:
    audio, rate_hz = soundfile.read(clip.path, dtype="float32")
    assert rate_hz == SAMPLE_RATE_HZ
    features: torch.Tensor = processor(audio, sampling_rate=rate_hz, return_tensors="pt").input_features
    return features


@pytest.mark.parametrize("clip", clips(), ids=lambda clip: clip.path.stem)
def test_the_converted_model_says_the_same(
    clip: Clip,
    reference: WhisperModel,
    converted: WhisperForConditionalGeneration,
    processor: WhisperProcessor,
) -> None:
    audio, _ = soundfile.read(clip.path, dtype="float32")
    segments, _ = reference.transcribe(
        audio,
        language="en",
        beam_size=1,
        temperature=0,
        without_timestamps=True,
        condition_on_previous_text=False,
    )
    expected = "".join(segment.text for segment in segments).strip()
    tokens = converted.generate(
        _features(clip, processor), language="en", task="transcribe", num_beams=1, do_sample=False
    )
    assert expected
    assert processor.decode(tokens[0], skip_special_tokens=True).strip() == expected


def test_the_first_logits_are_the_same(
    reference: WhisperModel, converted: WhisperForConditionalGeneration, processor: WhisperProcessor
) -> None:
    features = _features(clip_named("jfk"), processor)
    prompt = ["<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|notimestamps|>"]
    prompt_ids = processor.tokenizer.convert_tokens_to_ids(prompt)
    encoded = reference.encode(features[0].numpy())
    answer = reference.model.generate(
        encoded, [prompt_ids], beam_size=1, max_length=len(prompt) + 1, return_logits_vocab=True
    )
    expected = torch.tensor(np.array(answer[0].logits[0][0]))
    with torch.inference_mode():
        logits = converted(features, decoder_input_ids=torch.tensor([prompt_ids])).logits[0, -1]
    allowed = expected > torch.finfo(torch.float32).min / 2  # suppressed tokens have none
    assert allowed.sum() > 50_000
    assert torch.allclose(logits[allowed], expected[allowed], atol=2e-3)
