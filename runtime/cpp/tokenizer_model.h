// Reads a SentencePiece model from a file that nobody vouches for: SentencePiece itself trusts what this checks.
#pragma once

#include <filesystem>
#include <memory>

namespace sentencepiece {
class ModelProto;
}

namespace xformc {

inline constexpr const char* RETRAIN = "train the vocabulary with `xformc train`, and build the engine from that run";

// Throws Failure for a file that is not a SentencePiece model, or whose use could read outside of its memory, end the
// process, or not end.
std::unique_ptr<sentencepiece::ModelProto> read_tokenizer_model(const std::filesystem::path& path);

}  // namespace xformc
