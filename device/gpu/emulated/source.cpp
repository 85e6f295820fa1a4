#include "source.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <stdexcept>

namespace emulated {

namespace {

bool letter(char c) { return isalnum((unsigned char)c) || c == '_'; }

// bound is the number in __launch_bounds__(number), or otherwise.
int bound(const std::string &text, int otherwise) {
	size_t at = text.find("__launch_bounds__");
	at = at == std::string::npos ? at : text.find('(', at);
	int n = at == std::string::npos ? 0 : atoi(text.c_str() + at + 1);
	return n > 0 ? n : otherwise;
}

constexpr int most_threads = 1024;

} // namespace

bool Source::translate(const std::string &from, std::string &failed) {
	source = from + "\n";
	markers["__global__"] = most_threads;
	try {
		bool fresh = true; // only spaces in the line so far
		while (at < source.size()) {
			char c = source[at];
			if (c == '#' && fresh) {
				directive();
			} else if (c == '/' && space(at) != at) {
				keep(space(at));
			} else if (c == '"' || c == '\'') {
				keep(string_end(at));
			} else if (letter(c)) {
				word(source.substr(at, word_end(at) - at));
				fresh = false;
			} else {
				depth += c == '{' ? 1 : c == '}' ? -1 : 0;
				fresh = c == '\n' || (fresh && isspace((unsigned char)c));
				keep(at + 1);
			}
		}
	} catch (const std::runtime_error &e) {
		failed = "error: line " + std::to_string(1 + std::count(source.begin(), source.begin() + (ptrdiff_t)at, '\n')) +
		    ": " + e.what();
		return false;
	}
	entries = "EMULATED_ENTRIES(";
	for (auto &k : kernels)
		entries += "EMULATED_ENTRY(" + k.first + ", " + std::to_string(k.second) + ") ";
	entries += ")";
	return true;
}

void Source::keep(size_t end) {
	text += source.substr(at, end - at);
	at = end;
}

size_t Source::space(size_t p) const {
	for (;;) {
		while (p < source.size() && isspace((unsigned char)source[p]))
			p++;
		size_t end = std::string::npos;
		if (source.compare(p, 2, "//") == 0)
			end = source.find('\n', p);
		else if (source.compare(p, 2, "/*") == 0 && (end = source.find("*/", p + 2)) != std::string::npos)
			end += 2;
		if (end == std::string::npos)
			return p;
		p = end;
	}
}

size_t Source::word_end(size_t p) const {
	while (p < source.size() && letter(source[p]))
		p++;
	return p;
}

size_t Source::string_end(size_t p) const {
	char quote = source[p++];
	while (p < source.size() && source[p] != quote && source[p] != '\n')
		p += source[p] == '\\' ? 2 : 1;
	return std::min(p + 1, source.size());
}

size_t Source::group_end(size_t p) const {
	int open = 0;
	while (p < source.size()) {
		char c = source[p];
		if (c == '"' || c == '\'') {
			p = string_end(p);
			continue;
		}
		open += c == '(' ? 1 : c == ')' ? -1 : 0;
		p++;
		if (open == 0)
			return p;
	}
	throw std::runtime_error("a parenthesis that isn't closed");
}

size_t Source::line_end(size_t p) const {
	for (size_t end; (end = source.find('\n', p)) != std::string::npos; p = end + 1)
		if (end == 0 || source[end - 1] != '\\')
			return end;
	return source.size();
}

// directive keeps one of the preprocessor. A macro whose text has __global__ marks kernels.
void Source::directive() {
	size_t end = line_end(at), p = at + 1;
	while (p < end && (source[p] == ' ' || source[p] == '\t'))
		p++;
	std::string line = source.substr(at, end - at);
	if (source.compare(p, 6, "define") == 0 && line.find("__global__") != std::string::npos) {
		p = space(p + 6);
		markers[source.substr(p, word_end(p) - p)] = bound(line, most_threads);
	}
	keep(end);
}

void Source::word(const std::string &name) {
	size_t end = at + name.size(), next = space(end);
	auto marker = markers.find(name);
	if (marker != markers.end())
		kernel(end, marker->second);
	else if (name == "asm" || name == "__asm__")
		return statement_of_ptx(next);
	else if (name == "extern" && source.substr(next, word_end(next) - next) == "__shared__")
		return dynamic_shared(word_end(next));
	keep(end);
}

// kernel notes a kernel's name, which is the word before its parameters.
void Source::kernel(size_t p, int threads) {
	for (p = space(p); p < source.size() && source[p] != ';' && source[p] != '{'; p = space(p)) {
		if (!letter(source[p])) {
			p++;
			continue;
		}
		std::string name = source.substr(p, word_end(p) - p);
		size_t next = space(word_end(p));
		bool group = next < source.size() && source[next] == '(';
		if (group && name == "__launch_bounds__")
			threads = bound(source.substr(p, group_end(next) - p), threads);
		else if (group && name.compare(0, 2, "__") != 0) {
			kernels[name] = threads;
			return;
		}
		p = group ? group_end(next) : word_end(p);
	}
}

// statement_of_ptx makes asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x)) a call, emulated_ptx_cvt_f32_f16(y, x).
void Source::statement_of_ptx(size_t p) {
	while (letter(source[p])) // volatile
		p = space(word_end(p));
	if (source[p] != '(')
		throw std::runtime_error("an asm statement without parentheses");
	size_t end = group_end(p);
	std::string lines(std::count(source.begin() + (ptrdiff_t)at, source.begin() + (ptrdiff_t)end, '\n'), '\n');
	p = space(p + 1);
	if (source[p] != '"')
		throw std::runtime_error("an asm statement whose text isn't a string");
	std::string name = "emulated_ptx_", list;
	for (size_t k = p + 1; k < end && (letter(source[k]) || source[k] == '.'); k++)
		name += source[k] == '.' ? '_' : source[k];
	while (source[p] == '"')
		p = space(string_end(p));
	while (p < end - 1) { // after colons and commas: a constraint and an operand in parentheses
		if (source[p] == '"' && source[space(string_end(p))] == '(') {
			p = space(string_end(p));
			list += (list.empty() ? "" : ", ") + source.substr(p, group_end(p) - p);
			p = group_end(p);
		} else {
			p = source[p] == '"' ? string_end(p) : p + 1;
		}
		p = space(p);
	}
	text += name + "(" + list + ")" + lines;
	at = end;
}

// dynamic_shared makes extern __shared__ float x[]; a pointer to the block's memory.
void Source::dynamic_shared(size_t p) {
	size_t open = source.find('[', p), end = source.find(';', p);
	if (open == std::string::npos || end == std::string::npos || open > end ||
	    space(open + 1) != source.find(']', open))
		throw std::runtime_error("extern __shared__ that isn't an array without a size");
	if (depth == 0)
		throw std::runtime_error("extern __shared__ outside of functions isn't supported here");
	std::string before = source.substr(p, open - p), type;
	size_t last = before.find_last_not_of(" \t\n");
	size_t first = last;
	while (first > 0 && letter(before[first - 1]))
		first--;
	type = before.substr(0, first);
	text += type + " *" + before.substr(first, last + 1 - first) + " = (" + type + " *)emulated_dynamic_shared()";
	at = end;
}

} // namespace emulated
