// What a test tells the fake ONNX Runtime, and asks it.
#pragma once

enum fake_mode {
  FAKE_HONEST,
  FAKE_ENDLESS,  // a run ends when it is told to
  FAKE_FAILS,
  FAKE_FAILS_LONG,  // with a message of 100,000 characters
  FAKE_NO_TENSORS,
  FAKE_OTHER_TYPE,
  FAKE_OTHER_RANK,
  FAKE_MORE_ROWS,
  FAKE_FEWER_ROWS,
  FAKE_NAN,
  FAKE_LONG_LENGTHS,
  FAKE_NEGATIVE_LENGTHS,
  FAKE_STRANGE_TOKENS,
};

extern "C" {

// What runs return from now on, in every thread.
__attribute__((visibility("default"))) void fake_set(fake_mode mode);

// The number of objects that were made and not released.
__attribute__((visibility("default"))) long fake_live();
}
