// A loaded image: its shared object, its functions and its source.
#pragma once

#include "executor.h"

#include <map>

namespace emulated {

// Entry is what an image's shared object says of a function, as kernel.h has it.
struct Entry {
	const char *name;
	void (*call)(const unsigned char *);
	const Parameter *parameters;
	size_t count;
	int max_threads;
};

class Function {
  public:
	About about;
	void (*call)(const unsigned char *) = nullptr;
	size_t argument_bytes = 0;
	const Module *module = nullptr;
};

class Module {
  public:
	~Module();
	static std::unique_ptr<Module> load(const void *image, size_t bytes, std::string &why);

	const Function *find(const std::string &name) const;
	Range shared_memory() const;                               // of the calling thread
	bool has(uintptr_t at) const { return at - base < bytes; } // code and constants

	std::string line_of(uintptr_t pc) const;       // "module.cu:12: the line's text"
	std::string known_line_of(uintptr_t pc) const; // likewise, or empty
	std::string text_of(const std::string &file, unsigned line) const;

  private:
	void *handle = nullptr;
	std::string object, source;
	uintptr_t base = 0;
	size_t bytes = 0; // of its mapping
	size_t static_shared = 0;
	std::map<std::string, Function> functions;
	void *(*mark)() = nullptr; // in the thread's copy of the shared memory
};

} // namespace emulated
