// Each call with an allocation that fails: the n-th alone, and all from the n-th on, for every n until none fails. The
// status is XFORMC_OUT_OF_MEMORY or XFORMC_OK, and what the library took is given back.
// Only the allocations of libxformc fail, which are found by the address that they return to. Calls with texts and
// loads are left out: the protocol buffers inside SentencePiece and the destructors of nlohmann_json need memory.
// memory FOLDER
#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <functional>

#include "check.h"
#include "fake_onnxruntime.h"

extern "C" {
void* __libc_malloc(size_t size);
void __libc_free(void* memory);
}

namespace {

uintptr_t code_begin = 0, code_end = 0;
std::atomic<bool> counting{false}, all_fail{false};
std::atomic<long> calls{0}, failing{-1}, live{0};
constexpr size_t MARK = 0x6c69627866;

bool is_library(void* caller) {
  const auto address = reinterpret_cast<uintptr_t>(caller);
  return address >= code_begin && address < code_end;
}

bool fails(void* caller) {
  if (!counting || !is_library(caller)) return false;
  const long call = calls++;
  return all_fail ? failing >= 0 && call >= failing : call == failing;
}

// A block begins 16 bytes after what the system gave, and those say whether the library asked for it.
void* take(size_t size, void* caller) {
  if (fails(caller) || size > PTRDIFF_MAX - 16) {
    errno = ENOMEM;
    return nullptr;
  }
  auto* head = static_cast<size_t*>(__libc_malloc(size + 16));
  if (head == nullptr) return nullptr;
  head[0] = size;
  head[1] = is_library(caller) ? MARK : 0;
  if (head[1] == MARK) ++live;
  return head + 2;
}

}  // namespace

extern "C" {

void* malloc(size_t size) { return take(size, __builtin_return_address(0)); }

void* calloc(size_t count, size_t size) {
  size_t total = 0;
  if (__builtin_mul_overflow(count, size, &total)) return nullptr;
  void* found = take(total, __builtin_return_address(0));
  return found == nullptr ? nullptr : std::memset(found, 0, total);
}

void free(void* memory) {
  if (memory == nullptr) return;
  auto* head = static_cast<size_t*>(memory) - 2;
  if (head[1] == MARK) --live;
  __libc_free(head);
}

void* realloc(void* memory, size_t size) {
  void* found = take(size, __builtin_return_address(0));
  if (found == nullptr || memory == nullptr) return found;
  const size_t before = (static_cast<size_t*>(memory) - 2)[0];
  std::memcpy(found, memory, before < size ? before : size);
  free(memory);
  return found;
}

// Blocks with more than 16 bytes of alignment, which nothing here asks for.
void* aligned_alloc(size_t alignment, size_t size) {
  if (alignment > 16) std::abort();
  return take(size, __builtin_return_address(0));
}

int posix_memalign(void** found, size_t alignment, size_t size) {
  if (alignment > 16) return EINVAL;
  *found = take(size, __builtin_return_address(0));
  return *found == nullptr ? ENOMEM : 0;
}
}

namespace {

int find_code(dl_phdr_info* info, size_t, void*) {
  if (std::strstr(info->dlpi_name, "libxformc") == nullptr) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
    code_begin = info->dlpi_addr + part.p_vaddr;
    code_end = code_begin + part.p_memsz;
  }
  return 1;
}

// The status of a call, which frees what the call returned.
using Body = std::function<xformc_status(xformc_error**)>;

// Whether the call runs out of memory when the n-th allocation fails, and with `all` each after it.
bool fail_once(const Body& body, long n, bool all) {
  xformc_error* error = nullptr;
  calls = 0;
  failing = n;
  all_fail = all;
  counting = true;
  const xformc_status status = body(&error);
  counting = false;
  CHECK(status == XFORMC_OK || status == XFORMC_OUT_OF_MEMORY);
  CHECK(xformc_error_status(error) == status);
  if (status == XFORMC_OUT_OF_MEMORY) CHECK(*xformc_error_message(error) != 0);
  xformc_error_free(error);
  return status == XFORMC_OUT_OF_MEMORY;
}

void check_call(const char* name, const Body& body) {
  CHECK(body(nullptr) == XFORMC_OK);  // what is made once is there
  for (const bool all : {false, true}) {
    long failures = 0;
    for (long n = 0;; ++n) {
      long lost = 0;
      for (int attempt = 0; attempt < 2; ++attempt) {  // what is made once, by the first failure, is no loss
        const long before = live + fake_live();
        failures += fail_once(body, n, all);
        lost = live + fake_live() - before;
        if (lost == 0) break;
      }
      if (lost != 0) {
        std::fprintf(stderr, "%s: %ld are lost when allocation %ld%s fails\n", name, lost, n,
                     all ? " and each after it" : "");
        std::_Exit(1);
      }
      if (calls <= n) break;
    }
    CHECK(failures > 0);
  }
}

void check_runs(const Engines& engines) {
  const Arrays arrays(4, 3);
  const int64_t ids[] = {5, 6, 3};
  for (const int64_t workers : {1, 2}) {
    auto run = run_options();
    run.workers = workers;
    run.max_batch_tokens = 1;
    check_call("predict_arrays", [&](xformc_error** error) {
      xformc_results* results = nullptr;
      const xformc_status status =
          xformc_predict_arrays(engines.arrays, arrays.arrays.data(), 5, &run, &results, error);
      xformc_results_free(results);
      return status;
    });
  }
  check_call("search", [&](xformc_error** error) {
    xformc_results* results = nullptr;
    const xformc_status status = xformc_search(engines.translation, ids, 1, 3, nullptr, nullptr, &results, error);
    xformc_results_free(results);
    return status;
  });
}

}  // namespace

int main(int, char** argv) {
  const std::string folder = argv[1];
  dl_iterate_phdr(find_code, nullptr);
  CHECK(code_begin != 0);
  const Engines engines(folder);
  check_runs(engines);
}
