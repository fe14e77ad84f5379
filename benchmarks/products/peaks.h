// How many operations a second a processor's instructions do in registers, a multiplication and an addition being two.
#pragma once

#include <cstdint>

// Each runs its instruction so many rounds, and returns the operations of a round.
struct Peak {
  const char* name;
  int64_t (*run)(int64_t rounds);
};

// Those whose instructions the processor has; the last one has no name.
const Peak* peaks();
