#include "runtime/library.h"

#include <Python.h>
#include <dlfcn.h>

#include <c10/util/Exception.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "runtime/runtime.h"

namespace chorus {

Library lib;

namespace {
void* symbol(void* library, const std::string& path, const char* name) {
  void* f = dlsym(library, name);
  TORCH_CHECK(f, path, " has no function ", name, ": its version differs from this extension's; reinstall both");
  return f;
}

// raise_python throws the exception of the package chorus, which has the ranks of the failure.
[[noreturn]] void raise_python(chorus_status status) {
  pybind11::gil_scoped_acquire lock;
  pybind11::object error = pybind11::module_::import("chorus.errors").attr("last_error")(int(status));
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  python_error thrown;
  thrown.persist();
  throw std::move(thrown);
}
} // namespace

// out_of_memory is the library's message, in PyTorch's words for other devices.
static std::string out_of_memory(const std::string& message) {
  size_t at = message.find("tried to allocate");
  return at == std::string::npos ? message : name() + " out of memory. T" + message.substr(at + 1);
}

void load(const std::string& path, uint64_t signals, const std::vector<std::string>& command) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  TORCH_CHECK(library, "libchorus.so can't be loaded: ", dlerror());
#define X(name) lib.name.at = reinterpret_cast<decltype(lib.name.at)>(symbol(library, path, "chorus_" #name));
  CHORUS_FUNCTIONS(X)
#undef X
  uint32_t version = lib.abi_version();
  TORCH_CHECK(
      version >> 16 == CHORUS_ABI_MAJOR && int(version & 0xffff) >= CHORUS_ABI_MINOR, path, " has ABI ", version >> 16,
      ".", version & 0xffff, "; this extension needs ", CHORUS_ABI_MAJOR, ".", CHORUS_ABI_MINOR);
  chorus_host host{}; // the same as in the package chorus, which may not have been imported
  host.size = sizeof host;
  host.leave = [] { return static_cast<void*>(PyEval_SaveThread()); };
  host.enter = [](void* left) { PyEval_RestoreThread(static_cast<PyThreadState*>(left)); };
  host.check = &PyErr_CheckSignals;
  host.thread = signals;
  check(lib.set_host(&host));
  if (command.empty())
    return;
  std::vector<const char*> words;
  for (const std::string& word : command)
    words.push_back(word.c_str());
  check(lib.compile_apart(words.data(), int32_t(words.size())));
}

void raise(chorus_status status) {
  const char* message = lib.last_error()->message;
  switch (status) {
    case CHORUS_OUT_OF_MEMORY:
      TORCH_CHECK_WITH(OutOfMemoryError, false, out_of_memory(message));
    case CHORUS_UNSUPPORTED:
      TORCH_CHECK_NOT_IMPLEMENTED(false, message);
    case CHORUS_MISMATCH:
    case CHORUS_TIMEOUT:
    case CHORUS_PEER_LOST:
    case CHORUS_ABORTED:
    case CHORUS_CANCELED:
    case CHORUS_FINALIZED:
      if (Py_IsInitialized())
        raise_python(status);
      [[fallthrough]];
    default:
      TORCH_CHECK(false, message);
  }
}

} // namespace chorus
