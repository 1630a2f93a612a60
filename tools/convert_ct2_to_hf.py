#!/usr/bin/env python3
"""Convert a Whisper model from CTranslate2's folder layout to Hugging Face's.

Why: the Whisper weights that can be had as ordinary packages are CTranslate2 models (that is what
faster-whisper loads), while vLLM and transformers read ``WhisperForConditionalGeneration``. The numbers are
the same, only the names and the grouping differ, so nothing is lost and nothing is fetched: the conversion
is exact and works offline.

Usage::

    python convert_ct2_to_hf.py CT2_FOLDER OUT_FOLDER

**What is read.** A CTranslate2 folder holds ``model.bin``, ``config.json``, ``tokenizer.json`` and
``vocabulary.json`` or ``.txt``. ``model.bin`` (version 6, little-endian) is a header, then records::

    header   u32 version, text spec_name, u32 spec_revision, u32 number of records
    record   text name, u8 rank, u32 * rank dimensions, u8 dtype, u32 length in bytes, the bytes
    trailer  u32 number of aliases, then (text alias, text record name) for each
    text     u16 length, then that many bytes, the last of them NUL

dtype is 0 float32, 1 int8, 2 int16, 3 int32, 4 float16, 5 bfloat16; matrices are row-major, (out, in). An
alias is a tied weight: ``decoder/projection/weight`` is ``decoder/embeddings/weight``.

**What differs.** CTranslate2 fuses projections that read the same input. In ``self_attention``, ``linear_0``
is query, key and value stacked by rows and ``linear_1`` the output projection. In the decoder's
cross-attention (``attention``), ``linear_0`` is the query, ``linear_1`` key and value stacked, ``linear_2``
the output. Whisper's key projection has no bias: the fused bias holds zeros there, and a model where it does
not is refused rather than converted wrongly.

**What is written.** ``config.json``, ``generation_config.json``, ``model.safetensors`` (in the precision of
the source, float16 or float32), ``tokenizer.json``, ``tokenizer_config.json``, ``preprocessor_config.json``.
Everything in them is derived: sizes from the shapes of the weights, token ids from the vocabulary, suppressed
tokens and alignment heads from CTranslate2's ``config.json``. The tokenizer gains the timestamp tokens
``<|0.00|>`` to ``<|30.00|>``, which older tokenizer files leave out and vLLM needs for ``verbose_json``.

Needs numpy and safetensors.
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

__all__ = ["ConversionError", "Ct2Model", "Vocabulary", "convert", "main", "read_model", "rename_weights"]

Array = NDArray[Any]
Json = dict[str, Any]

BINARY_VERSION = 6
SPEC_NAME = "WhisperSpec"
DTYPES: dict[int, type[np.generic]] = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16}
WEIGHT_DTYPES = (np.dtype(np.float16), np.dtype(np.float32))

# The vocabulary of OpenAI's English-only models is one token shorter (51,864): it has no slot to spare.
SMALLEST_MULTILINGUAL_VOCABULARY = 51_865
FIRST_TIMESTAMP, LAST_TIMESTAMP = "<|0.00|>", "<|30.00|>"


class ConversionError(ValueError):
    """The folder holds something that this tool does not convert. The message says what."""


# --- CTranslate2's model.bin ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Ct2Model:
    """The contents of one ``model.bin``.

    Attributes:
        revision: revision of the Whisper specification that wrote it.
        variables: every record by name, scalars as arrays of rank 0. The arrays are read-only views of the
            file's bytes.
        aliases: tied weights: another name -> the record's name.
    """

    revision: int
    variables: dict[str, Array]
    aliases: dict[str, str]

    def __getitem__(self, name: str) -> Array:
        """One record.

        Raises:
            ConversionError: there is none of that name.
        """
        try:
            return self.variables[self.aliases.get(name, name)]
        except KeyError:
            raise ConversionError(f"model.bin has no record {name!r}: is this a Whisper model?") from None

    def count_layers(self, side: str) -> int:
        """Number of layers of the ``encoder`` or ``decoder``."""
        prefix = f"{side}/layer_"
        layers = {name.removeprefix(prefix).split("/")[0] for name in self.variables if name.startswith(prefix)}
        return len(layers - {"norm"})  # "encoder/layer_norm/…" is the last normalisation, not a layer


def read_model(path: Path) -> Ct2Model:
    """Read a CTranslate2 ``model.bin``.

    Args:
        path: the file. It is read into memory once.

    Raises:
        ConversionError: another format, version or model, a quantised model, or a file cut short.
    """
    with path.open("rb") as file:
        try:
            return _read_model(file)
        except (struct.error, UnicodeDecodeError) as error:
            raise ConversionError(f"{path} is no complete CTranslate2 model: {error}") from error


def _read_model(file: BinaryIO) -> Ct2Model:
    (version,) = _unpack(file, "I")
    if version != BINARY_VERSION:
        raise ConversionError(f"model.bin has format version {version}; this tool reads {BINARY_VERSION}")
    if (spec := _text(file)) != SPEC_NAME:
        raise ConversionError(f"model.bin holds a {spec}; this tool converts {SPEC_NAME}")
    revision, num_records = _unpack(file, "II")
    variables = dict(_record(file) for _ in range(num_records))
    (num_aliases,) = _unpack(file, "I")
    aliases = {_text(file): _text(file) for _ in range(num_aliases)}
    return Ct2Model(revision=revision, variables=variables, aliases=aliases)


def _record(file: BinaryIO) -> tuple[str, Array]:
    name = _text(file)
    (rank,) = _unpack(file, "B")
    shape = _unpack(file, f"{rank}I")
    dtype_id, num_bytes = _unpack(file, "BI")
    if dtype_id not in DTYPES:
        raise ConversionError(f"record {name!r} has dtype {dtype_id}; convert a float16 or float32 model instead")
    dtype = np.dtype(DTYPES[dtype_id]).newbyteorder("<")
    if num_bytes != dtype.itemsize * int(np.prod(shape, dtype=np.int64)):
        raise ConversionError(f"record {name!r} holds {num_bytes} bytes, which is not {shape} numbers of {dtype}")
    return name, np.frombuffer(_exactly(file, num_bytes), dtype=dtype).reshape(shape)


def _text(file: BinaryIO) -> str:
    (length,) = _unpack(file, "H")
    return _exactly(file, length).rstrip(b"\0").decode()


def _unpack(file: BinaryIO, fields: str) -> tuple[int, ...]:
    layout = struct.Struct("<" + fields)
    return layout.unpack(_exactly(file, layout.size))


def _exactly(file: BinaryIO, num_bytes: int) -> bytes:
    data = file.read(num_bytes)
    if len(data) != num_bytes:
        raise ConversionError(f"model.bin is cut short: {num_bytes} bytes expected, {len(data)} left")
    return data


# --- weights ----------------------------------------------------------------------------------------------


def rename_weights(model: Ct2Model) -> dict[str, Array]:
    """The weights under the names that transformers gives them, projections taken apart.

    The output projection is not among them: it is tied to ``decoder.embed_tokens``, and transformers and
    vLLM tie it again.

    Raises:
        ConversionError: a record is missing, quantised, or not as Whisper's should be.
    """
    if "decoder/projection/weight" not in model.aliases:
        raise ConversionError("the output projection is not tied to the embeddings: this is not OpenAI's Whisper")
    weights = dict(_stem(model))
    for side in ("encoder", "decoder"):
        for index in range(model.count_layers(side)):
            weights |= _layer(model, side, index)
    for name, weight in weights.items():
        if weight.dtype not in WEIGHT_DTYPES:
            raise ConversionError(
                f"{name} is {weight.dtype}: convert a float16 or float32 model, not a quantised one"
            )
    return {f"model.{name}": np.ascontiguousarray(weight) for name, weight in weights.items()}


def _stem(model: Ct2Model) -> Iterator[tuple[str, Array]]:
    """Everything outside the layers."""
    for conv in ("conv1", "conv2"):
        for part in ("weight", "bias"):
            yield f"encoder.{conv}.{part}", model[f"encoder/{conv}/{part}"]
    yield "decoder.embed_tokens.weight", model["decoder/embeddings/weight"]
    for side in ("encoder", "decoder"):
        yield f"{side}.embed_positions.weight", model[f"{side}/position_encodings/encodings"]
        yield from _norm(model, f"{side}/layer_norm", f"{side}.layer_norm")


def _layer(model: Ct2Model, side: str, index: int) -> dict[str, Array]:
    """One transformer layer."""
    source, target = f"{side}/layer_{index}", f"{side}.layers.{index}"
    weights = dict(_norm(model, f"{source}/self_attention/layer_norm", f"{target}.self_attn_layer_norm"))
    weights |= _linear(model, f"{source}/self_attention/linear_0", f"{target}.self_attn", "qkv")
    weights |= _linear(model, f"{source}/self_attention/linear_1", f"{target}.self_attn", "o")
    if side == "decoder":
        weights |= _norm(model, f"{source}/attention/layer_norm", f"{target}.encoder_attn_layer_norm")
        weights |= _linear(model, f"{source}/attention/linear_0", f"{target}.encoder_attn", "q")
        weights |= _linear(model, f"{source}/attention/linear_1", f"{target}.encoder_attn", "kv")
        weights |= _linear(model, f"{source}/attention/linear_2", f"{target}.encoder_attn", "o")
    weights |= _norm(model, f"{source}/ffn/layer_norm", f"{target}.final_layer_norm")
    for number in (0, 1):
        for part in ("weight", "bias"):
            weights[f"{target}.fc{number + 1}.{part}"] = model[f"{source}/ffn/linear_{number}/{part}"]
    return weights


def _norm(model: Ct2Model, source: str, target: str) -> Iterator[tuple[str, Array]]:
    yield f"{target}.weight", model[f"{source}/gamma"]
    yield f"{target}.bias", model[f"{source}/beta"]


def _linear(model: Ct2Model, source: str, target: str, parts: str) -> dict[str, Array]:
    """One (fused) projection; ``parts`` names what is stacked in it: q, k, v or o."""
    names = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "out_proj"}
    split: dict[str, Array] = {}
    for kind in ("weight", "bias"):
        fused = model[f"{source}/{kind}"]
        if fused.shape[0] % len(parts):
            raise ConversionError(f"{source}/{kind} has {fused.shape[0]} rows, which {len(parts)} do not divide")
        for part, piece in zip(parts, np.split(fused, len(parts)), strict=True):
            if part == "k" and kind == "bias":
                if piece.any():
                    raise ConversionError(f"{source}/bias has a bias for the key: this is not OpenAI's Whisper")
                continue
            split[f"{target}.{names[part]}.{kind}"] = piece
    return split


# --- vocabulary and configuration -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Whisper's tokens in the order of their ids."""

    tokens: tuple[str, ...]

    @classmethod
    def read(cls, folder: Path) -> Vocabulary:
        """Read ``vocabulary.json`` (newer converters) or ``vocabulary.txt`` (one token a line).

        Raises:
            ConversionError: the folder has neither.
        """
        if (path := folder / "vocabulary.json").is_file():
            return cls(tuple(json.loads(path.read_text(encoding="utf-8"))))
        if (path := folder / "vocabulary.txt").is_file():
            return cls(tuple(path.read_text(encoding="utf-8").removesuffix("\n").split("\n")))
        raise ConversionError(f"{folder} has neither vocabulary.json nor vocabulary.txt")

    def id_of(self, token: str) -> int:
        """The id of a token.

        Raises:
            ConversionError: it is not in the vocabulary.
        """
        try:
            return self.tokens.index(token)
        except ValueError:
            raise ConversionError(f"the vocabulary has no {token}: is this a Whisper model?") from None

    @property
    def is_multilingual(self) -> bool:
        """Whether the model takes a language and a task."""
        return len(self.tokens) >= SMALLEST_MULTILINGUAL_VOCABULARY

    @property
    def languages(self) -> dict[str, int]:
        """Language token -> id. They stand between ``<|startoftranscript|>`` and ``<|translate|>``."""
        first, end = self.id_of("<|startoftranscript|>") + 1, self.id_of("<|translate|>")
        return {self.tokens[token_id]: token_id for token_id in range(first, end)}

    @property
    def timestamps(self) -> dict[str, int]:
        """Timestamp token -> id, from 0.00 s to 30.00 s in steps of 20 ms."""
        first, last = self.id_of(FIRST_TIMESTAMP), self.id_of(LAST_TIMESTAMP)
        return {self.tokens[token_id]: token_id for token_id in range(first, last + 1)}


def model_config(model: Ct2Model, vocabulary: Vocabulary) -> Json:
    """``config.json``: every size is read off the weights."""
    conv = model["encoder/conv1/weight"]  # (d_model, mel bins, kernel)
    embeddings = model["decoder/embeddings/weight"]  # (vocabulary, d_model)
    if embeddings.shape[0] != len(vocabulary.tokens):
        raise ConversionError(f"{embeddings.shape[0]} embeddings, but {len(vocabulary.tokens)} tokens")
    end_id = vocabulary.id_of("<|endoftext|>")
    return {
        "architectures": ["WhisperForConditionalGeneration"],
        "model_type": "whisper",
        "activation_function": "gelu",
        "d_model": embeddings.shape[1],
        "vocab_size": embeddings.shape[0],
        "num_mel_bins": conv.shape[1],
        "encoder_layers": model.count_layers("encoder"),
        "encoder_attention_heads": int(model["encoder/num_heads"]),
        "encoder_ffn_dim": model["encoder/layer_0/ffn/linear_0/weight"].shape[0],
        "decoder_layers": model.count_layers("decoder"),
        "decoder_attention_heads": int(model["decoder/num_heads"]),
        "decoder_ffn_dim": model["decoder/layer_0/ffn/linear_0/weight"].shape[0],
        "max_source_positions": model["encoder/position_encodings/encodings"].shape[0],
        "max_target_positions": model["decoder/position_encodings/encodings"].shape[0],
        "scale_embedding": bool(model["decoder/scale_embeddings"]),
        "is_encoder_decoder": True,
        "tie_word_embeddings": True,
        "use_cache": True,
        "bos_token_id": end_id,
        "eos_token_id": end_id,
        "pad_token_id": end_id,
        "decoder_start_token_id": vocabulary.id_of("<|startoftranscript|>"),
        "dtype": str(embeddings.dtype),
    }


def generation_config(model: Ct2Model, vocabulary: Vocabulary, ct2_config: Json) -> Json:
    """``generation_config.json``: what transformers' Whisper needs to prompt the model and to stop it."""
    end_id = vocabulary.id_of("<|endoftext|>")
    config: Json = {
        "alignment_heads": ct2_config["alignment_heads"],
        "begin_suppress_tokens": ct2_config["suppress_ids_begin"],
        "suppress_tokens": ct2_config["suppress_ids"],
        "bos_token_id": end_id,
        "eos_token_id": end_id,
        "pad_token_id": end_id,
        "decoder_start_token_id": vocabulary.id_of("<|startoftranscript|>"),
        "prev_sot_token_id": vocabulary.id_of("<|startofprev|>"),
        "no_timestamps_token_id": vocabulary.id_of("<|notimestamps|>"),
        "is_multilingual": vocabulary.is_multilingual,
        "max_initial_timestamp_index": 50,  # OpenAI's: speech starts within the first second
        "max_length": model["decoder/position_encodings/encodings"].shape[0],
        "return_timestamps": False,
    }
    if vocabulary.is_multilingual:
        config["lang_to_id"] = vocabulary.languages
        config["task_to_id"] = {task: vocabulary.id_of(f"<|{task}|>") for task in ("transcribe", "translate")}
    return config


def preprocessor_config(model: Ct2Model) -> Json:
    """``preprocessor_config.json``: Whisper's log-mel features of 30 s at 16 kHz."""
    num_frames = 2 * model["encoder/position_encodings/encodings"].shape[0]  # the second convolution halves them
    hop_length, sampling_rate_hz = 160, 16_000
    return {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "processor_class": "WhisperProcessor",
        "feature_size": model["encoder/conv1/weight"].shape[1],
        "sampling_rate": sampling_rate_hz,
        "hop_length": hop_length,
        "n_fft": 400,
        "chunk_length": num_frames * hop_length // sampling_rate_hz,
        "n_samples": num_frames * hop_length,
        "nb_max_frames": num_frames,
        "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": False,
    }


def tokenizer_files(tokenizer: Json, vocabulary: Vocabulary) -> tuple[Json, Json]:
    """``tokenizer.json`` with the timestamp tokens where they were missing, and ``tokenizer_config.json``."""
    added = list(tokenizer["added_tokens"])
    known = {token["content"] for token in added}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    added += [
        {"id": token_id, "content": token, **flags}
        for token, token_id in vocabulary.timestamps.items()
        if token not in known
    ]
    special = sorted((token for token in added if token["special"]), key=lambda token: int(token["id"]))
    end = "<|endoftext|>"
    config = {
        "tokenizer_class": "WhisperTokenizer",
        "processor_class": "WhisperProcessor",
        "add_prefix_space": False,
        "bos_token": end,
        "eos_token": end,
        "pad_token": end,
        "unk_token": end,
        "additional_special_tokens": [token["content"] for token in special],
        "clean_up_tokenization_spaces": False,
        "errors": "replace",
        "model_max_length": 1024,
        "return_attention_mask": False,
    }
    return {**tokenizer, "added_tokens": added}, config


# --- the tool ---------------------------------------------------------------------------------------------


def convert(source: Path, target: Path) -> list[Path]:
    """Convert the CTranslate2 model in ``source`` into ``target``, which is made if need be.

    Returns:
        The files written.

    Raises:
        ConversionError: ``source`` holds no Whisper model in half or single precision.
        OSError: a file cannot be read or written.
    """
    model = read_model(source / "model.bin")
    vocabulary = Vocabulary.read(source)
    ct2_config: Json = json.loads((source / "config.json").read_text(encoding="utf-8"))
    tokenizer: Json = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer, tokenizer_config = tokenizer_files(tokenizer, vocabulary)
    documents = {
        "config.json": model_config(model, vocabulary),
        "generation_config.json": generation_config(model, vocabulary, ct2_config),
        "preprocessor_config.json": preprocessor_config(model),
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": tokenizer_config,
    }
    weights = rename_weights(model)

    target.mkdir(parents=True, exist_ok=True)
    written = [target / "model.safetensors"]
    save_file(weights, written[0], metadata={"format": "pt"})
    for name, document in documents.items():
        written.append(target / name)
        written[-1].write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return written


def main(arguments: list[str] | None = None) -> int:
    """Run the tool; returns the exit status."""
    parser = argparse.ArgumentParser(description="Convert a CTranslate2 Whisper model to Hugging Face's layout.")
    parser.add_argument("source", type=Path, metavar="CT2_FOLDER", help="holds model.bin and its companions")
    parser.add_argument("target", type=Path, metavar="OUT_FOLDER", help="made if it does not exist")
    options = parser.parse_args(arguments)
    try:
        written = convert(options.source, options.target)
    except (ConversionError, OSError) as error:
        print(f"convert_ct2_to_hf: {error}", file=sys.stderr)
        return 1
    for path in written:
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
