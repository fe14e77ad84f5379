// The engine's vocabularies, by the inputs and results that they are of.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "manifest.h"
#include "vocabulary.h"

namespace xformc {

// The vocabulary of each input and each result that has a tokenizer; those with the same one share it.
using Tokenizer = std::map<std::string, std::shared_ptr<const Vocabulary>>;

// What the library lacks of the vocabulary of an input or a result, which the Python runtime may have.
using Lacking = std::map<std::string, std::string>;

// Reads the files. Throws Failure for one that is damaged or does not fit. A vocabulary of a kind that the library lacks
// is left out, and `lacking` says why: the engine may run on ids.
Tokenizer load_tokenizer(const std::filesystem::path& folder, const Manifest& manifest, Lacking& lacking);

}  // namespace xformc
