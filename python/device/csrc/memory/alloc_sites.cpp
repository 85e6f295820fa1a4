#include "memory/alloc_sites.h"

#include <Python.h>

#include <array>
#include <atomic>
#include <map>

namespace chorus {

namespace {

std::atomic<bool> recording{false};
thread_local std::array<uint32_t, 64> sites; // the innermost call first
thread_local int32_t n_sites = 0;

// site is the library's number of a line of a function. The caller holds the GIL. It keeps the function's code alive,
// whose address is the key.
uint32_t site(PyCodeObject* code, int line) {
  static auto* known = new std::map<std::pair<PyCodeObject*, int>, uint32_t>;
  auto at = known->find({code, line});
  if (at != known->end())
    return at->second;
#if PY_VERSION_HEX >= 0x030b0000
  PyObject* name = code->co_qualname;
#else
  PyObject* name = code->co_name;
#endif
  const char *file = PyUnicode_AsUTF8(code->co_filename), *function = PyUnicode_AsUTF8(name);
  if (!file || !function)
    PyErr_Clear();
  Py_INCREF(code);
  return (*known)[{code, line}] = lib.site(file ? file : "?", line, function ? function : "?");
}

} // namespace

void record_alloc_sites(bool wanted) {
  recording = wanted;
}

AllocSites::AllocSites() {
  if (!recording.load(std::memory_order_relaxed) || n_sites > 0 || !Py_IsInitialized() ||
      !PyGILState_GetThisThreadState()) // a thread without Python code
    return;
  outermost_ = true;
  Locked lock;
  PyFrameObject* frame = PyEval_GetFrame();
  Py_XINCREF(frame);
  while (frame && n_sites < int32_t(sites.size())) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    sites[n_sites++] = site(code, PyFrame_GetLineNumber(frame));
    Py_DECREF(code);
    PyFrameObject* caller = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = caller;
  }
  Py_XDECREF(frame);
}

AllocSites::~AllocSites() {
  if (outermost_)
    n_sites = 0;
}

void report_alloc_site(const Block& block) {
  if (n_sites > 0)
    check(lib.cache_came(device(block.index).handle, block.memory, sites.data(), n_sites));
}

} // namespace chorus
