// Each call with an allocation that fails: the n-th alone, and all from the n-th on, for every n until none fails. The
// status is XFORMC_OUT_OF_MEMORY or XFORMC_OK, and what the library took is given back.
// Only the allocations of libxformc fail, which are found by the address that they return to.
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

// `body` returns the status of a call, and frees what the call returned.
void check_call(const char* name, const std::function<xformc_status(xformc_error**)>& body) {
  CHECK(body(nullptr) == XFORMC_OK);  // what is made once is there
  for (const bool all : {false, true}) {
    long failures = 0;
    for (long n = 0;; ++n) {
      const long before = live, objects = fake_live();
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
      failures += status == XFORMC_OUT_OF_MEMORY;
      if (live != before || fake_live() != objects) {
        std::fprintf(stderr, "%s: %ld blocks and %ld objects are lost when allocation %ld%s fails\n", name,
                     live - before, fake_live() - objects, n, all ? " and each after it" : "");
        std::_Exit(1);
      }
      if (calls <= n) break;
    }
    CHECK(failures > 0);
  }
}

int read_three(void* data, xformc_text* text) {
  *text = {"one two", 7};
  return (*static_cast<int*>(data))++ < 3 ? 1 : 0;
}

int write_none(void*, size_t, const xformc_results*) { return 0; }

void check_runs(const Engines& engines) {
  const auto texts = texts_of({"one two", "three", ""});
  const Arrays arrays(2, 3);
  const int64_t ids[] = {5, 6, 3};
  const auto kept = [](const std::function<xformc_status(xformc_results**, xformc_error**)>& call) {
    return [=](xformc_error** error) {
      xformc_results* results = nullptr;
      const xformc_status status = call(&results, error);
      xformc_results_free(results);
      return status;
    };
  };
  for (const int64_t workers : {1, 2}) {
    auto run = run_options();
    run.workers = workers;
    run.max_batch_tokens = 1;
    check_call("translate", kept([&](auto** results, auto** error) {
                 return xformc_translate(engines.translation, texts.data(), 3, nullptr, &run, results, error);
               }));
    check_call("translate_stream", [&](auto** error) {
      int count = 0;
      return xformc_translate_stream(engines.translation, read_three, &count, write_none, nullptr, nullptr, &run,
                                     error);
    });
  }
  check_call("generate", kept([&](auto** results, auto** error) {
               return xformc_generate(engines.language_model, texts.data(), 3, nullptr, nullptr, results, error);
             }));
  check_call("predict", kept([&](auto** results, auto** error) {
               return xformc_predict(engines.tagging, texts.data(), 3, nullptr, results, error);
             }));
  check_call("predict_arrays", kept([&](auto** results, auto** error) {
               return xformc_predict_arrays(engines.arrays, arrays.arrays.data(), 5, nullptr, results, error);
             }));
  check_call("search", kept([&](auto** results, auto** error) {
               return xformc_search(engines.translation, ids, 1, 3, nullptr, nullptr, results, error);
             }));
  check_call("encode", [&](auto** error) {
    size_t count = 0;
    return xformc_encode(engines.translation, "source", texts[0], nullptr, 0, &count, error);
  });
  check_call("decode", [&](auto** error) {
    size_t size = 0;
    return xformc_decode(engines.translation, "source", ids, 3, nullptr, 0, &size, error);
  });
}

}  // namespace

int main(int, char** argv) {
  const std::string folder = argv[1];
  dl_iterate_phdr(find_code, nullptr);
  CHECK(code_begin != 0);
  {
    const Engines engines(folder);
    check_runs(engines);
  }
  for (const char* task : {"translation", "arrays"}) {
    const std::string engine = folder + "/" + task;
    check_call("load", [&](auto** error) {
      xformc_engine* loaded = nullptr;
      const xformc_status status = xformc_load(engine.c_str(), nullptr, &loaded, error);
      xformc_engine_free(loaded);
      return status;
    });
  }
}
