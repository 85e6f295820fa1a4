#include "library.h"

#include <dlfcn.h>

#include <c10/util/Exception.h>

namespace chorus {

Library lib;

namespace {
void* symbol(void* library, const std::string& path, const char* name) {
  void* f = dlsym(library, name);
  TORCH_CHECK(f, path, " has no function ", name, ": it is of another version than this extension; install both anew");
  return f;
}
} // namespace

void load(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  TORCH_CHECK(library, "libchorus.so can't be loaded: ", dlerror());
#define X(name) lib.name = reinterpret_cast<decltype(lib.name)>(symbol(library, path, "chorus_" #name));
  CHORUS_FUNCTIONS(X)
#undef X
  uint32_t version = lib.abi_version();
  TORCH_CHECK(
      version >> 16 == CHORUS_ABI_MAJOR && int(version & 0xffff) >= CHORUS_ABI_MINOR, path, " has ABI ", version >> 16,
      ".", version & 0xffff, "; this extension needs ", CHORUS_ABI_MAJOR, ".", CHORUS_ABI_MINOR);
}

void raise(chorus_status status) {
  const char* message = lib.last_error()->message;
  switch (status) {
    case CHORUS_OUT_OF_MEMORY:
      TORCH_CHECK_WITH(OutOfMemoryError, false, message);
    case CHORUS_UNSUPPORTED:
      TORCH_CHECK_NOT_IMPLEMENTED(false, message);
    default:
      TORCH_CHECK(false, message);
  }
}

} // namespace chorus
