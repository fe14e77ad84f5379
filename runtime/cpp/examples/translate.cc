// Translates lines of text: translate ENGINE < in.txt > out.txt
#include <iostream>
#include <string>
#include <xformc.hpp>

int main(int count, char** words) {
  if (count != 2) {
    std::cerr << "usage: " << words[0] << " ENGINE < in.txt > out.txt\n";
    return 2;
  }
  try {
    const xformc::Engine engine(words[1]);
    xformc::SearchOptions search;
    search.beam_size = 4;
    engine.translate_stream([](std::string& line) { return bool(std::getline(std::cin, line)); },
                            [](size_t, auto hypotheses) { std::cout << hypotheses[0].text << '\n'; }, search);
  } catch (const xformc::Error& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 2;
  }
}
