// Checks of xformc.hpp, which prints what fails:
// face COPY_ENGINE ENDLESS_ENGINE LANGUAGE_MODEL PAIRS IMAGES HEADS CAPTION JOIN
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <thread>
#include <xformc.hpp>

namespace {

int failures = 0;

void check(bool holds, const char* what, int line) {
  if (holds) return;
  std::fprintf(stderr, "face.cc:%d: %s\n", line, what);
  ++failures;
}
#define CHECK(...) check((__VA_ARGS__), #__VA_ARGS__, __LINE__)

template <typename Body>
xformc::Error error_of(const Body& body) {
  try {
    body();
  } catch (const xformc::Error& error) {
    return error;
  }
  return {XFORMC_OK, "nothing was thrown"};
}

using Strings = std::vector<std::string>;

Strings texts(const std::vector<std::vector<xformc::Hypothesis>>& results) {
  Strings found;
  for (const auto& hypotheses : results) found.push_back(hypotheses.at(0).text);
  return found;
}

void check_translation(const std::string& folder) {
  xformc::Engine loaded(folder);
  const xformc::Engine engine = std::move(loaded);
  static_assert(!std::is_copy_constructible_v<xformc::Engine>);
  CHECK(engine.name() == "copy" && engine.task() == "translation" && engine.target() == "portable");
  CHECK(engine.precision() == "float32" && engine.onnxruntime() > "1." && engine.labels().empty());
  CHECK(engine.inputs().size() == 2 && engine.inputs()[0].name == "source" && engine.inputs()[0].kind == "tokens");
  CHECK(engine.inputs()[0].vocabulary > 4 && engine.inputs()[0].longest == 0 && engine.inputs()[0].has_tokenizer);
  CHECK(std::string(xformc::version()) == xformc_version());

  const Strings many = {"two dogs", "", "hello world"};
  CHECK(texts(engine.translate(many)) == many);
  CHECK(texts(engine.translate(std::vector<std::string_view>{"two dogs"})) == Strings{"two dogs"});
  CHECK(texts(engine.translate({"two dogs", many[2]})) == Strings{"two dogs", "hello world"});
  CHECK(engine.translate({}).empty() && engine.translate(Strings{}).empty());
  CHECK(engine.translate("two dogs")[0].text == "two dogs" && engine.translate(many[0])[0].text == many[0]);
  xformc::SearchOptions search;
  search.n_best = 3;
  const auto hypotheses = engine.translate("two dogs", search);
  CHECK(hypotheses.size() == 3 && hypotheses[0].score > hypotheses[2].score && hypotheses[0].tokens.back() == 3);
#if __cplusplus >= 202002L
  CHECK(engine.translate("two dogs", {.n_best = 2})[1].text == "two dogs");
  CHECK(texts(engine.translate(many, {.beam_size = 2}, {.workers = 2, .max_batch_tokens = 1})) == many);
#endif

  const auto ids = engine.encode("source", "two dogs");
  CHECK(ids == hypotheses[0].tokens && engine.decode("source", ids) == "two dogs");
  CHECK(engine.encode("source", "\uFDFA\uFDFA\uFDFA").size() > 11);  // one character becomes 18
  const auto longer = engine.encode("source", "hello world");
  const auto found = engine.search({ids, longer}, search);
  CHECK(found.size() == 2 && found[1].size() == 3 && found[1][0].tokens == longer && found[1][0].text.empty());
  CHECK(engine.search({}).empty());
}

void check_errors(const std::string& folder) {
  const xformc::Engine engine(folder);
  xformc::SearchOptions search;
  search.beam_size = 0;
  const auto range = error_of([&] { engine.translate("one", search); });
  CHECK(range.status() == XFORMC_INVALID_ARGUMENT &&
        range.message() == "beam_size must be an integer from 1 to 40, not 0");
  search = {};
  search.n_best = 5;
  const auto several = error_of([&] { engine.translate("one", search); });
  CHECK(several.what() == several.message() + "\nhint: " + several.hint() && several.place().empty());
  search = {};
  search.length_penalty = std::nan("");
  CHECK(error_of([&] { engine.translate("one", search); }).message() == "length_penalty must be a number, not nan");
  xformc::RunOptions run;
  run.workers = INT64_MIN;
  CHECK(error_of([&] { engine.translate("one", {}, run); }).message() == "workers must be a number, not INT64_MIN");
  const auto text = error_of([&] { engine.translate({"one", "\xff"}); });
  CHECK(text.place() == "line 2" && text.what() == std::string("line 2: not valid Unicode text"));
  CHECK(error_of([&] { engine.generate("one"); }).message().find("is a translation engine") != std::string::npos);
  CHECK(error_of([&] { engine.predict("one"); }).status() == XFORMC_INVALID_ARGUMENT);
  CHECK(error_of([&] { engine.encode("sauce", "one"); }).message().find("'sauce'") != std::string::npos);
  CHECK(error_of([&] { engine.decode("sauce", {3}); }).status() == XFORMC_INVALID_ARGUMENT);
  const auto missing = error_of([&] { xformc::Engine(folder + "/none"); });
  CHECK(missing.status() == XFORMC_INVALID_ENGINE && missing.place() == folder + "/none");
  xformc::LoadOptions load;
  load.onnxruntime = "/none.so";
  CHECK(error_of([&] { xformc::Engine(folder, load); }).place() == "/none.so");
}

void check_streams(const std::string& folder) {
  const xformc::Engine engine(folder);
  const auto counted = [](size_t& number, size_t last) {
    return [&number, last](std::string& text) {
      if (number == last) return false;
      text = number++ % 2 == 0 ? "two dogs" : "hello world";
      return true;
    };
  };
  size_t given = 0, number = 0;
  engine.translate_stream(counted(number, 5000), [&](size_t index, std::vector<xformc::Hypothesis> hypotheses) {
    CHECK(index == given++ && hypotheses[0].text == (index % 2 == 0 ? "two dogs" : "hello world"));
  });
  CHECK(given == 5000);

  given = number = 0;
  bool thrown = false;
  try {
    engine.translate_stream(
        [&](std::string& text) {
          if (number++ == 40) throw std::runtime_error("read");
          text = "one";
          return true;
        },
        [&](size_t, auto) { ++given; });
  } catch (const std::runtime_error& error) {
    thrown = error.what() == std::string("read");
  }
  CHECK(thrown && given == 40);

  number = 0;
  thrown = false;
  try {
    engine.translate_stream(counted(number, 5000), [&](size_t index, auto) {
      if (index == 7) throw 7;
    });
  } catch (int code) {
    thrown = code == 7;
  }
  CHECK(thrown && number < 5000);

  given = number = 0;
  const auto broken = [&](std::string& text) {
    text = number++ == 3 ? "\xff" : "one";
    return true;
  };
  CHECK(error_of([&] { engine.translate_stream(broken, [&](size_t, auto) { ++given; }); }).place() == "line 4");
  CHECK(given == 3);
}

void check_nested_calls(const std::string& folder) {
  const xformc::Engine engine(folder);
  int left = 3;
  size_t given = 0;
  engine.translate_stream(
      [&](std::string& text) {
        text = engine.translate("two dogs")[0].text;
        return left-- > 0;
      },
      [&](size_t, auto hypotheses) { given += engine.translate(hypotheses[0].text)[0].text == "two dogs"; });
  CHECK(given == 3);
}

void check_fork(const std::string& folder) {
  xformc::LoadOptions load;
  load.threads = 2;  // a thread of its own, which the child lacks
  std::optional<xformc::Engine> engine(std::in_place, folder, load);
  engine->translate("one");
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    const auto forked = error_of([&] { engine->translate("one"); });
    CHECK(forked.message().find("before the process was forked") != std::string::npos);
    CHECK(xformc::Engine(folder).translate("one")[0].text == "one");
    engine.reset();
    _exit(failures);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

void check_log(const std::string& folder) {
  Strings messages;
  xformc::LoadOptions load;
  load.threads = 1;
  load.verify_hashes = false;
  load.log = [&](xformc_log_level level, const char* message) {
    if (level == XFORMC_LOG_WARNING) messages.emplace_back(message);
    throw 1;  // is dropped
  };
  xformc::Engine first(folder, load);
  const xformc::Engine engine = std::move(first);
  std::string text;
  for (int i = 0; i < 2400; ++i) text += "two dogs ";
  xformc::RunOptions run;
  CHECK(error_of([&] { engine.translate(text, {}, run); }).hint().find("max_batch_tokens=") != std::string::npos);
  run.truncate = true;
  engine.translate(text, {}, run);
  CHECK(messages.size() == 1 && messages[0].find("line 1: cut from ") == 0);
}

void check_cancel(const std::string& folder) {
  const xformc::Engine engine(folder);
  xformc::Cancel cancel;
  xformc::RunOptions run;
  run.cancel = &cancel;
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    cancel.now();
  });
  CHECK(error_of([&] { engine.translate("one", {}, run); }).status() == XFORMC_CANCELLED);
  other.join();
  CHECK(error_of([&] {
          engine.translate_stream([](std::string&) { return true; }, [](size_t, auto) {}, {}, run);
        }).status() == XFORMC_CANCELLED);
}

void check_language_model(const std::string& folder) {
  const xformc::Engine engine(folder);
  xformc::SampleOptions sampling;
  sampling.seed = 4;
  sampling.max_new_tokens = 5;
  const Strings prompts = {"a man", "", "two dogs"};
  const auto together = engine.generate(prompts, sampling);
  CHECK(together.size() == 3 && together[0].tokens.size() <= 5 && together[0].score < 0);
  CHECK(engine.generate("a man", sampling).tokens == together[0].tokens);
  size_t number = 0;
  engine.generate_stream(
      [&](std::string& prompt) {
        if (number == prompts.size()) return false;
        prompt = prompts[number++];
        return true;
      },
      [&](size_t index, xformc::Hypothesis one) { CHECK(one.text == together[index].text); }, sampling);
}

void check_labels(const std::string& pairs, const std::string& images) {
  const xformc::Engine engine(pairs);
  CHECK(engine.labels() == Strings{"no", "perhaps", "yes"} && engine.inputs().size() == 2);
  const auto found = engine.predict({"a man", "two dogs", "one", "hello"});
  CHECK(found.size() == 2 && found[0].labels.size() == 1 && found[0].probabilities.size() == 3);
  CHECK(error_of([&] { engine.predict({"one", "two", "three"}); }).status() == XFORMC_INVALID_ARGUMENT);
  size_t number = 0, given = 0;
  engine.predict_stream(
      [&](Strings& texts) {
        CHECK(texts.size() == 2);
        texts[0] = "a man";
        texts[1] = "two dogs";
        return number++ < 3;
      },
      [&](size_t, const xformc::Prediction& one) { given += one.probabilities == found[0].probabilities; });
  CHECK(given == 3);
  const auto lacking = [&] {
    engine.predict_stream(
        [](Strings& texts) {
          texts = {"one"};
          return true;
        },
        [](size_t, auto) {});
  };
  CHECK(error_of(lacking).message() == "read must give a text for each input");

  const xformc::Engine classifier(images);
  const std::vector<float> pixels(2 * 18, 0.5F);
  const auto seen = classifier.predict_arrays({{"image", pixels.data(), {2, 3, 2, 3}}});
  CHECK(seen.size() == 2 && seen[0].probabilities == seen[1].probabilities && seen[0].probabilities.size() == 4);
  CHECK(error_of([&] { classifier.predict_arrays({{"image", pixels.data(), {2, 3, 2}}}); }).status() ==
        XFORMC_INVALID_ARGUMENT);
}

void check_results(const std::string& heads) {
  const xformc::Engine engine(heads);
  CHECK(engine.task() == "prediction" && engine.results().size() == 5 && engine.results()[2].several);
  CHECK(engine.results()[0].positions == "words" && engine.results()[2].positions.empty());
  CHECK(engine.labels() == engine.results()[0].labels && engine.labels().size() == 4);
  const xformc::Prediction found = engine.predict("two dogs");
  CHECK(found.labels.size() == 2 && found.probabilities.size() == 8 && found.results.size() == 5);
  CHECK(found.results[2].name == "topics" && found.results[2].labels.size() == 2);
  CHECK(found.results[2].shape == std::vector<int64_t>{1, 3} && found.results[2].numbers[2] == 0.75F);
  CHECK(found.results[1].labels.size() == 2 && found.results[3].shape.empty() && found.results[3].numbers.size() == 1);
  CHECK(found.results[4].kind == "vectors" && found.results[4].shape == std::vector<int64_t>{2, 2});
  const xformc::Prediction empty = engine.predict("");
  CHECK(empty.labels.empty() && empty.results[4].shape == std::vector<int64_t>{0, 2} &&
        empty.results[4].numbers.empty());
}

void check_transcription(const std::string& caption, const std::string& join) {
  const xformc::Engine writer(caption);
  CHECK(writer.inputs().size() == 2 && writer.given_inputs().size() == 1 && writer.given_inputs()[0].name == "image");
  const std::vector<float> pixels = {5, 6, 7, 8, 9, 10};
  xformc::SearchOptions search;
  search.n_best = 2;
  const auto seen = writer.transcribe_arrays({{"image", pixels.data(), {1, 2, 3}}}, search);
  CHECK(seen.size() == 1 && seen[0].hypotheses.size() == 2 && !seen[0].hypotheses[0].text.empty());
  CHECK(seen[0].results.size() == 2 && seen[0].results[0].name == "brightness" && seen[0].results[0].numbers[0] == 45);
  CHECK(seen[0].results[1].labels == Strings{"sea"});
  CHECK(error_of([&] { writer.transcribe("one"); }).hint() == "give it arrays: xformc_transcribe_arrays");

  const xformc::Engine engine(join);
  const auto found = engine.transcribe({"two dogs", "hello", "a man", "a"});
  CHECK(found.size() == 2 && !found[1].hypotheses[0].text.empty() && found[0].results.empty());
  CHECK(error_of([&] { engine.transcribe({"one", "two", "three"}); }).status() == XFORMC_INVALID_ARGUMENT);
  size_t number = 0, given = 0;
  engine.transcribe_stream(
      [&](Strings& texts) {
        texts = {"two dogs", "hello"};
        return number++ < 3;
      },
      [&](size_t, const xformc::Transcription& one) {
        given += one.hypotheses[0].text == found[0].hypotheses[0].text ? 1 : 0;
      });
  CHECK(given == 3);
}

void check_sampling(const std::string& draw) {
  const xformc::Engine engine(draw);
  xformc::SampleOptions sampling;
  sampling.seed = 7;
  const auto found = engine.sample({"two dogs", "hello"}, sampling);
  xformc::SampleOptions stopped;
  stopped.stop = {"END"};
  CHECK(std::string(error_of([&] { engine.sample({"hello"}, stopped); }).message()) ==
        "stop is an option of language models");
  CHECK(found.size() == 2 && found[0].hypotheses.size() == 1 && !found[0].hypotheses[0].text.empty());
  CHECK(found[0].results.size() == 1 && found[0].results[0].name == "total");
  const std::vector<int64_t> ids = engine.encode("words", "two dogs");
  const auto length = static_cast<int64_t>(ids.size());
  const auto same = engine.sample_arrays({{"words", ids.data(), {1, length}}}, sampling);
  CHECK(same[0].hypotheses[0].tokens == found[0].hypotheses[0].tokens);
  size_t number = 0, given = 0;
  engine.sample_stream(
      [&](Strings& texts) {
        texts = {number == 0 ? "two dogs" : "hello"};
        return number++ < 2;
      },
      [&](size_t index, const xformc::Transcription& one) {
        given += one.hypotheses[0].tokens == found[index].hypotheses[0].tokens ? 1 : 0;
      },
      sampling);
  CHECK(given == 2);
  CHECK(error_of([&] { engine.transcribe("one"); }).hint() == "use xformc_sample");
  CHECK(error_of([&] { engine.translate("one"); }).hint() == "use xformc_sample");
}

void check_sounds(const std::string& sounds, const std::string& path) {
  const xformc::Engine engine(sounds);
  CHECK(engine.given_inputs()[0].rate == 8000 && engine.results()[0].kind == "ctc");
  CHECK(engine.results()[0].has_tokenizer && !engine.results()[1].has_tokenizer);
  const xformc::Prediction found = engine.predict(path);
  CHECK(found.results.size() == 2 && found.results[0].hypotheses.size() == 2 && found.results[0].numbers.empty());
  CHECK(found.results[0].hypotheses[0].tokens.size() == 2 && !found.results[0].hypotheses[0].text.empty());
  CHECK(found.results[1].shape == std::vector<int64_t>{2});
  const std::vector<float> samples = {0.5F, 0.25F};
  const std::vector<int64_t> lengths = {1};
  const auto given =
      engine.predict_arrays({{"wave", samples.data(), {1, 1, 2}}, {"wave_lengths", lengths.data(), {1}}});
  CHECK(given[0].results[0].hypotheses.size() == 1 && given[0].results[0].hypotheses[0].score == 0.75F);
  CHECK(error_of([&] { engine.predict(path + ".mp3"); }).status() == XFORMC_INVALID_ARGUMENT);
}

}  // namespace

void check_edits(const std::string& writer, const std::string& model) {
  const xformc::Engine engine(writer);
  xformc::SearchOptions search;
  const auto text = [&] { return engine.transcribe({"two dogs", "hello"}, search)[0].hypotheses[0].text; };
  const std::string without = text();
  search.suppress_tokens = {5, "\u2581dog", std::string("<unk>")};
  const std::string suppressed = text();
  search.suppress_tokens = std::vector<xformc::Token>();
  CHECK(suppressed != without && text() == without);
  search.presence_penalty = 3;
  CHECK(text() != without);
  search.presence_penalty = std::nan("");
  CHECK(error_of(text).message() == "presence_penalty must be a number, not nan");
  const xformc::Engine tales(model);
  xformc::SampleOptions sampling;
  const std::string told = tales.generate("hello", sampling).text;
  sampling.suppress_tokens = {"<unk>"};
  CHECK(tales.generate("hello", sampling).text != told);
  sampling.suppress_tokens = {"two"};
  CHECK(error_of([&] { tales.generate("hello", sampling); }).hint().find("begins a word") != std::string::npos);
}

void check_stream_of_tokens(const std::string& model) {
  const xformc::Engine engine(model);
  CHECK(engine.streams() && !engine.aligns());
  xformc::SampleOptions sampling;
  sampling.max_new_tokens = 12;
  const auto whole = engine.generate("hello", sampling);
  for (const int64_t at_once : {1, 3, 100}) {
    xformc::RunOptions run;
    run.tokens_at_once = at_once;
    std::string text;
    const auto found = engine.stream_tokens("hello", [&](std::string_view piece) { text += piece; }, sampling, run);
    CHECK(text == whole.text && found.text == whole.text && found.tokens == whole.tokens);
    xformc::SampleOptions stopped = sampling;
    stopped.stop = {"no such text", whole.text.substr(whole.text.size() / 2, 2)};
    const auto cut = engine.stream_tokens("hello", [](std::string_view) {}, stopped, run);
    CHECK(cut.text == whole.text.substr(0, whole.text.find(stopped.stop[1])) &&
          cut.tokens.size() < whole.tokens.size());
    CHECK(engine.generate("hello", stopped).tokens == cut.tokens);
  }
  int left = 2;
  const auto first = engine.stream_tokens("hello", [&](std::string_view) { return --left > 0; }, sampling);
  CHECK(first.tokens == std::vector<int64_t>(whole.tokens.begin(), whole.tokens.begin() + 2));
  bool thrown = false;
  try {
    engine.stream_tokens("hello", [](std::string_view) { throw 7; }, sampling);
  } catch (int code) {
    thrown = code == 7;
  }
  xformc::Cancel cancel;
  xformc::RunOptions run;
  run.cancel = &cancel;
  CHECK(thrown && error_of([&] {
                    engine.stream_tokens("hello", [&](std::string_view) { cancel.now(); }, sampling, run);
                  }).status() == XFORMC_CANCELLED);
}

void check_links(const std::string& folder) {
  const xformc::Engine engine(folder);
  xformc::RunOptions run;
  run.alignment = true;
  const auto translated = engine.translate("two dogs here", {}, run)[0];
  const auto given = engine.align({"two dogs here", ""}, {translated.text, "one"});
  CHECK(engine.aligns() && translated.alignment && translated.alignment->pharaoh() == given[0].pharaoh());
  CHECK(given[0].attention.size() == given[0].targets * given[0].sources && given[1].words.empty());
  CHECK(!engine.translate("two")[0].alignment);
  CHECK(error_of([&] { engine.search({{5, 3}}, {}, run); }).message() == "alignments are those of texts");
  CHECK(error_of([&] { engine.align({"two"}, {}); }).status() == XFORMC_INVALID_ARGUMENT);
}

int main(int, char** words) {
  check_translation(words[1]);
  check_errors(words[1]);
  check_streams(words[1]);
  check_nested_calls(words[1]);
  check_fork(words[1]);
  check_log(words[1]);
  check_cancel(words[2]);
  check_language_model(words[3]);
  check_labels(words[4], words[5]);
  check_results(words[6]);
  check_transcription(words[7], words[8]);
  check_sampling(words[9]);
  check_sounds(words[10], words[11]);
  check_edits(words[12], words[13]);
  check_stream_of_tokens(words[13]);
  check_links(words[14]);
  return failures == 0 ? 0 : 1;
}
