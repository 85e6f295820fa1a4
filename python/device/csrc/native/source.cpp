#include "native/source.h"

#include <ATen/ops/_to_copy.h>

#include "native/index_errors.h"
#include "native/native.h"
#include "runtime/stream.h"

namespace chorus {

int32_t add_source(const std::string& text) {
  int32_t source = 0;
  check(lib.source_add(text.c_str(), &source));
  return source;
}

void run_source(
    int32_t source, const std::string& title, int64_t units, bool rows, bool checked,
    const std::vector<Argument>& arguments) {
  DeviceIndex index = device_of(title, arguments);
  std::vector<at::Tensor> copies; // freed on the stream, behind the kernel
  c10::SmallVector<void*, 16> pointers;
  c10::SmallVector<int64_t, 8> integers;
  for (const Argument& a : arguments) {
    if (const at::Tensor* t = std::get_if<at::Tensor>(&a)) {
      TORCH_CHECK(integers.empty(), title, " is given a tensor behind numbers");
      if (t->device().type() != kType) {
        TORCH_CHECK(t->is_cpu() && t->numel() == 1, title, " is given a tensor of ", t->device());
        copies.push_back(at::_to_copy(*t, t->options().device(c10::Device(kType, index))));
        t = &copies.back();
      }
      pointers.push_back(const_cast<void*>(t->const_data_ptr()));
    } else {
      const int64_t* n = std::get_if<int64_t>(&a);
      TORCH_CHECK(n, title, " is given a number with a fraction");
      integers.push_back(*n);
    }
  }
  if (checked) {
    static const c10::OperatorName compiled("aten::index", "Tensor"); // which a compiled program has most checks of
    pointers.push_back(bad_word(index, compiled));
  }
  chorus_source run{};
  run.size = sizeof run;
  run.source = source;
  run.rows = rows;
  run.units = units;
  run.pointers = pointers.data();
  run.n_pointers = int32_t(pointers.size());
  run.integers = integers.data();
  run.n_integers = int32_t(integers.size());
  check(lib.source_run(current_handle(index), &run));
}

} // namespace chorus
