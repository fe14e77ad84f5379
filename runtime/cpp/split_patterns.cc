#include "split_patterns.h"

#include <cstdint>

#include "unicode.h"

namespace xformc {
namespace {

enum class Class { letter, number, space, other, none };

// A place in a text, and the character there.
struct Place {
  std::string_view text;
  size_t at, next;
  char32_t character = 0;
  Class kind = Class::none;

  Place(std::string_view text_, size_t at_) : text(text_), at(at_), next(at_) {
    if (at == text.size()) return;
    character = next_character(text, next);
    kind = is_letter(character)        ? Class::letter
           : is_number(character)      ? Class::number
           : is_white_space(character) ? Class::space
                                       : Class::other;
  }

  Place following() const { return {text, next}; }
  bool is_line_break() const { return kind == Class::space && (character == '\r' || character == '\n'); }
};

// The end of the run of characters of a kind, of at most so many.
size_t end_of(Place place, Class kind, size_t most = SIZE_MAX) {
  for (size_t count = 0; place.kind == kind && count < most; ++count) place = place.following();
  return place.at;
}

// 's, 't, 're, 've, 'm, 'll or 'd at an apostrophe: its end; 0 for none. U+017F is an s of another case.
size_t contraction(const Place& apostrophe, bool any_case) {
  if (apostrophe.kind != Class::other || apostrophe.character != '\'') return 0;
  const auto lower = [any_case](char32_t one) -> char32_t {
    if (!any_case) return one;
    if (one == 0x17f) return U's';
    return one >= 'A' && one <= 'Z' ? one | 0x20 : one;
  };
  const Place first = apostrophe.following();
  const char32_t one = lower(first.character);
  if (one == 's' || one == 't' || one == 'm' || one == 'd') return first.next;
  const Place second = first.following();
  const char32_t other = lower(second.character);
  const bool two = (one == 'r' && other == 'e') || (one == 'v' && other == 'e') || (one == 'l' && other == 'l');
  return two ? second.next : 0;
}

// \s+(?!\S)|\s+ at white space: all of it, but before another character the last is left to it.
size_t white_space(const Place& place) {
  size_t last = place.at;
  Place here = place;
  while (here.kind == Class::space) {
    last = here.at;
    here = here.following();
  }
  return here.kind == Class::none || last == place.at ? here.at : last;
}

size_t gpt2(std::string_view text, size_t at) {
  const Place first(text, at);
  if (const size_t end = contraction(first, false)) return end;
  const Place second = first.following();
  const bool led = first.character == ' ' && second.kind != Class::space && second.kind != Class::none;
  const Place& place = led ? second : first;
  return place.kind == Class::space ? white_space(place) : end_of(place, place.kind);
}

// The expression of GPT-4, with at most so many digits in a number.
size_t gpt4(std::string_view text, size_t at, size_t digits) {
  const Place first(text, at);
  if (const size_t end = contraction(first, true)) return end;
  const Place second = first.following();
  if (first.kind == Class::letter) return end_of(first, Class::letter);
  if (first.kind == Class::number) return end_of(first, Class::number, digits);
  if (second.kind == Class::letter && !first.is_line_break()) return end_of(second, Class::letter);
  const bool led = first.character == ' ' && second.kind == Class::other;
  if (led || first.kind == Class::other) {
    Place end(text, end_of(led ? second : first, Class::other));
    while (end.is_line_break()) end = end.following();
    return end.at;
  }
  size_t after_break = 0;  // of the last one in the white space
  for (Place here = first; here.kind == Class::space; here = here.following()) {
    if (here.is_line_break()) after_break = here.next;
  }
  return after_break > 0 ? after_break : white_space(first);
}

size_t llama3(std::string_view text, size_t at) { return gpt4(text, at, 3); }
size_t qwen2(std::string_view text, size_t at) { return gpt4(text, at, 1); }

struct Known {
  std::string_view expression;
  WordEnd word_end;
};

constexpr Known KNOWN[] = {
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", gpt2},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     llama3},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     qwen2},
};

}  // namespace

WordEnd word_end_of(std::string_view expression) {
  for (const Known& known : KNOWN) {
    if (known.expression == expression) return known.word_end;
  }
  return nullptr;
}

WordEnd gpt2_words() { return gpt2; }

}  // namespace xformc
