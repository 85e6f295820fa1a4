// The executor runs kernels: it loads an image, finds a function in it and launches it on the memory of an emulated GPU.
// The server calls this from one thread for each hardware queue, so that all of it may be called at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace emulated {

// Dialect is the words that a source is written in, and how many threads run in lockstep.
enum class Dialect : uint32_t { cuda, hip };

// A source is compiled in the process that calls NVRTC or hiprtc. Images are whole files: an Image, then a shared
// object, as many bytes in all as that says.
struct Image {
	char magic[8];          // magic_of_image
	uint64_t bytes;         // of the whole image, this header with it
	uint64_t shared_object; // where that begins
};
constexpr char magic_of_image[8] = {'\x7f', 'E', 'M', 'U', 'G', 'P', 'U', 1};

struct Compiled {
	bool done;
	std::string image; // if it's done
	std::string log;   // what the compiler says, with the lines of the source
};

// compile makes an image of a source, whose name is that of its file in messages. The checks of EMULATED_GPU_CHECKS
// are compiled in unless it's "off".
Compiled compile(
    Dialect dialect, const std::string &source, const std::string &name, const std::vector<std::string> &options);

// A range is memory that kernels may touch: an allocation of a device, or pinned memory of the host.
struct Range {
	uintptr_t base;
	size_t bytes;
};

// Fault is how a launch ended.
enum class Fault { none, illegal_address, misaligned_address, assertion, launch_failed };

struct Outcome {
	Fault fault = Fault::none;
	std::string text; // of a fault: kernel, block, thread, line
};

struct Parameter {
	size_t offset, bytes; // in the function's list
};

class Module;   // a loaded image
class Function; // of a module, which lives as long as that

// About is what is known of a function.
struct About {
	std::string name;
	std::vector<Parameter> parameters;
	size_t static_shared = 0, local = 0;
	int registers = 0, max_threads = 1024;
};

struct Dim {
	unsigned x, y, z;
};

struct Launch {
	const Function *function;
	Dim grid, block;
	size_t dynamic_shared;
	const unsigned char *arguments; // packed, each at its parameter's offset
};

// An executor has the memory and the modules of one process's devices.
class Executor {
  public:
	virtual ~Executor() = default;

	// Memory: what of it kernels may touch, and which bytes have a value. Launches that are under way see the change.
	virtual void allocated(Range range, bool written) = 0;               // written: its bytes have values already
	virtual void freed(Range range) = 0;                                 // as a whole
	virtual void written(Range range) = 0;                               // by a copy from the host, or a fill
	virtual void copied(uintptr_t to, uintptr_t from, size_t bytes) = 0; // within memory: after the copy

	// Modules. Each returns null, with the reason in why, for what it can't do.
	virtual Module *load(const void *image, size_t bytes, std::string &why) = 0;
	virtual void unload(Module *module) = 0; // no launch of it is under way
	virtual const Function *find(Module *module, const std::string &name) = 0;
	virtual const About &about(const Function *function) = 0;

	// launch runs all blocks, and returns when they have ended. The grid and the block are within the limits.
	virtual Outcome launch(const Launch &launch) = 0;
};

// executor makes one. Its modules are of the dialect.
std::unique_ptr<Executor> executor(Dialect dialect);

} // namespace emulated
