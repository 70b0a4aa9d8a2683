"""The tokenizer of BERT's family: words are taken apart into the longest pieces of a vocabulary.

Wu et al., "Google's Neural Machine Translation System", 2016, section 4.1; what is cleaned up before is as in Devlin et
al., "BERT", 2018.
"""

import unicodedata

import numpy as np

STEP = 16
"""Lengths are multiples of this, so that few different shapes come up, and plans are found again."""


class WordPiece:
    """Tokens of texts, by the description in a `tokenizer.json`: texts of lower case without accents, as the model
    has learnt."""

    def __init__(self, description, longest=128):
        model = description["model"]
        self.vocabulary = model["vocab"]
        self.prefix = model["continuing_subword_prefix"]
        self.unknown = self.vocabulary[model["unk_token"]]
        self.longest_word = model["max_input_chars_per_word"]
        self.first, self.last = self.vocabulary["[CLS]"], self.vocabulary["[SEP]"]
        self.padding = self.vocabulary["[PAD]"]
        self.longest = longest

    def ids(self, text):
        """The numbers of a text's tokens, between the ones that begin and end every text."""
        found = [number for word in words(text) for number in self._pieces(word)]
        return [self.first, *found[: self.longest - 2], self.last]

    def batch(self, texts):
        """Numbers and mask (texts, tokens), both int64: shorter texts are padded, where the mask is 0."""
        rows = [self.ids(text) for text in texts]
        length = -(-max(map(len, rows)) // STEP) * STEP
        ids = np.full((len(rows), length), self.padding, np.int64)
        mask = np.zeros_like(ids)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = row
            mask[i, : len(row)] = 1
        return ids, mask

    def _pieces(self, word):
        if len(word) > self.longest_word:
            return [self.unknown]
        found, start = [], 0
        while start < len(word):
            prefix = self.prefix if start else ""
            for end in range(len(word), start, -1):
                number = self.vocabulary.get(prefix + word[start:end])
                if number is not None:
                    break
            else:
                return [self.unknown]
            found.append(number)
            start = end
        return found


def words(text):
    """Words and punctuation marks, in lower case and without accents; every Chinese character is a word."""
    spaced = []
    for character in unicodedata.normalize("NFD", text):
        kind = unicodedata.category(character)
        if kind == "Mn" or character == "\ufffd" or (kind in ("Cc", "Cf", "Co", "Cs") and character not in "\t\n\r"):
            continue
        if is_chinese(ord(character)) or is_punctuation(character, kind):
            spaced += [" ", character, " "]
        else:
            spaced.append(" " if character.isspace() else character.lower())
    return "".join(spaced).split()


def is_punctuation(character, kind):
    return kind.startswith("P") or (character.isascii() and not character.isalnum() and not character.isspace())


RANGES = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


def is_chinese(code):
    return any(low <= code <= high for low, high in RANGES)
