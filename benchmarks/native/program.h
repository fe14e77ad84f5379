// What the programs share: their options, and the loop that answers requests.
#ifndef XFORMC_BENCHMARKS_NATIVE_PROGRAM_H_
#define XFORMC_BENCHMARKS_NATIVE_PROGRAM_H_

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <exception>
#include <fstream>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

using Lines = std::vector<std::string>;

// The options of a program, given as NAME=VALUE.
class Options {
 public:
  Options(int count, char** arguments) {
    for (int index = 1; index < count; ++index) {
      const std::string argument = arguments[index];
      const size_t sign = argument.find('=');
      if (sign == std::string::npos) throw std::runtime_error("not NAME=VALUE: " + argument);
      values_[argument.substr(0, sign)] = argument.substr(sign + 1);
    }
  }
  const std::string& text(const std::string& name) const {
    const auto found = values_.find(name);
    if (found == values_.end()) throw std::runtime_error("missing: " + name + "=VALUE");
    return found->second;
  }
  long number(const std::string& name) const { return std::stol(text(name)); }
  double real(const std::string& name) const { return std::stod(text(name)); }

 private:
  std::map<std::string, std::string> values_;
};

inline Lines read_lines(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  Lines lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// Translates the first line of the file `text`, and answers with the seconds of processor time since the start of the
// process. Then translates the first `lines` lines of the file for each request "LINES OUTPUT", writes the translations
// to OUTPUT, and answers with the seconds and the seconds of processor time that this took, without files.
template <typename Translator>
int answer_requests(int count, char** arguments) {
  try {
    const Options options(count, arguments);
    const Lines all = read_lines(options.text("text"));
    Translator translator(options);
    translator.translate(Lines(all.begin(), all.begin() + 1));
    std::printf("%.6f\n", static_cast<double>(std::clock()) / CLOCKS_PER_SEC);
    std::fflush(stdout);
    size_t lines = 0;
    for (std::string output; std::cin >> lines >> output;) {
      const Lines source(all.begin(), all.begin() + std::min(lines, all.size()));
      const auto began = std::chrono::steady_clock::now();
      const std::clock_t processor = std::clock();
      const Lines translated = translator.translate(source);
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
      const double used = static_cast<double>(std::clock() - processor) / CLOCKS_PER_SEC;
      std::ofstream file(output);
      for (const std::string& line : translated) file << line << '\n';
      file.close();
      std::printf("%.6f %.6f\n", seconds.count(), used);
      std::fflush(stdout);
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}

#endif
