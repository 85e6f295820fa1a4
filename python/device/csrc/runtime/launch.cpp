#include "runtime/launch.h"

#include <ATen/ops/clone.h>

#include "aten/tensor_aliases.h"
#include "memory/block.h"
#include "runtime/stream.h"

namespace chorus {

namespace {

using CpuKernel = void(void**);

// Launch is a kernel with its arguments.
struct Launch {
  union Cell {
    void* pointer;
    int64_t integer;
    float real;
  };
  CpuKernel* kernel;
  std::vector<Cell> cells;
  std::vector<at::Tensor> kept; // tensors of the host's

  void run() {
    std::vector<void*> places;
    places.reserve(cells.size());
    for (Cell& cell : cells)
      places.push_back(&cell);
    kernel(places.data());
  }
};

chorus_status run_launch(void* user, void* const*, chorus_reply* reply) {
  try {
    static_cast<Launch*>(user)->run();
    return CHORUS_OK;
  } catch (const std::exception& e) {
    lib.reply_error(reply, e.what());
  } catch (...) {
    lib.reply_error(reply, "an exception of an unknown kind");
  }
  return CHORUS_INTERNAL;
}

void end_launch(void* user) {
  delete static_cast<Launch*>(user);
}

} // namespace

DeviceIndex device_of(const std::string& title, const std::vector<Argument>& arguments) {
  DeviceIndex index = -1;
  for (const Argument& a : arguments)
    if (const at::Tensor* t = std::get_if<at::Tensor>(&a); t && t->device().type() == kType) {
      TORCH_CHECK(
          index < 0 || index == t->device().index(), title, " is given tensors of ", c10::Device(kType, index), " and ",
          t->device());
      index = t->device().index();
    }
  TORCH_CHECK(index >= 0, title, " is given no tensor of ", name());
  return index;
}

void launch(
    uintptr_t kernel, const std::string& title, const std::vector<Argument>& arguments, uint64_t constant) {
  auto made = std::make_unique<Launch>();
  made->kernel = reinterpret_cast<CpuKernel*>(kernel);
  made->cells.reserve(arguments.size());
  DeviceIndex index = device_of(title, arguments);
  std::vector<chorus_span> spans;
  std::vector<size_t> of_host; // positions
  for (const Argument& a : arguments) {
    Launch::Cell cell;
    if (const at::Tensor* t = std::get_if<at::Tensor>(&a)) {
      if (t->device().type() == kType) {
        c10::StorageImpl* storage = t->storage().unsafeGetStorageImpl();
        char* view = nullptr;
        if (device(index).views)
          view = static_cast<char*>(view_of(storage->_mutable_data_ptr_no_checks(), storage->nbytes()));
        cell.pointer = view ? view + t->storage_offset() * t->itemsize() : nullptr;
        if (storage->nbytes() > 0)
          spans.push_back({storage->_mutable_data_ptr_no_checks().get(), int64_t(storage->nbytes())});
      } else {
        TORCH_CHECK(t->device().is_cpu(), title, " is given a tensor of ", t->device());
        cell.pointer = const_cast<void*>(t->const_data_ptr());
        of_host.push_back(made->cells.size());
      }
    } else if (const int64_t* n = std::get_if<int64_t>(&a)) {
      cell.integer = *n;
    } else {
      cell.real = float(std::get<double>(a));
    }
    made->cells.push_back(cell);
  }
  chorus_stream stream = current_handle(index);
  if (!device(index).views) {
    Drained drained(stream, title.c_str(), "this process can't touch the device's memory");
    TensorAliases aliases(index);
    for (const Argument& a : arguments)
      if (const at::Tensor* t = std::get_if<at::Tensor>(&a); t && !t->is_cpu())
        aliases.host(*t);
    aliases.fetch();
    for (size_t i = 0; i < arguments.size(); i++)
      if (const at::Tensor* t = std::get_if<at::Tensor>(&arguments[i]); t && !t->is_cpu()) {
        made->cells[i].pointer = aliases.host(*t).mutable_data_ptr();
        if (i >= 64 || !(constant >> i & 1))
          aliases.wrote(*t);
      }
    made->run();
    aliases.settle();
    return;
  }
  if (try_enter(stream, title.c_str())) {
    Turn turn(stream);
    made->run();
    return;
  }
  for (size_t i : of_host) {
    made->kept.push_back(at::clone(std::get<at::Tensor>(arguments[i])));
    made->cells[i].pointer = made->kept.back().data_ptr();
  }
  check(lib.stream_task(
      stream, title.c_str(), spans.data(), int32_t(spans.size()), &run_launch, &end_launch, made.get()));
  made.release();
}

} // namespace chorus
