// A kernel's source in CUDA's or HIP's C++ as one of the host's, with the same lines. Its text is
// changed where macros and functions don't do: asm statements of PTX, dynamic shared memory, and the list of kernels.
#pragma once

#include <map>
#include <string>

namespace emulated {

class Source {
  public:
	bool translate(const std::string &source, std::string &failed);

	std::string text;    // of the source
	std::string entries; // behind it: the list of kernels

  private:
	void word(const std::string &name);
	void directive();
	void statement_of_ptx(size_t from);
	void dynamic_shared(size_t from);
	void kernel(size_t at, int threads);

	void keep(size_t end);         // copies the source up to there
	size_t space(size_t at) const; // behind spaces and comments
	size_t word_end(size_t at) const;
	size_t string_end(size_t at) const;
	size_t group_end(size_t at) const; // of parentheses
	size_t line_end(size_t at) const;  // with its continuations

	std::string source;
	size_t at = 0;                      // what is before is in the text
	int depth = 0;                      // of braces
	std::map<std::string, int> markers; // of kernels, with the most threads of a block
	std::map<std::string, int> kernels;
};

} // namespace emulated
