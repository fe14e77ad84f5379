"""CTranslate2's C++ library and libxformc, each called by a C++ program."""
