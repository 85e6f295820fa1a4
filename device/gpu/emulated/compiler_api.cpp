// The functions of NVRTC and hiprtc.
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>

#include "executor.h"

using namespace emulated;

#ifdef EMULATED_CUDA
#define EXPORT(cuda, hip) extern "C" __attribute__((visibility("default"))) int cuda
constexpr Dialect dialect = Dialect::cuda;
#else
#define EXPORT(cuda, hip) extern "C" __attribute__((visibility("default"))) int hip
constexpr Dialect dialect = Dialect::hip;
#endif

namespace {

enum { done = 0, invalid_input = 3, invalid_program = 4, compilation = 6 };

struct Program {
	std::string source, name;
	Compiled compiled{};
};

int give(const std::string &text, char *to, size_t terminator) {
	memcpy(to, text.c_str(), text.size() + terminator);
	return done;
}

} // namespace

EXPORT(nvrtcVersion, hiprtcVersion)(int *major, int *minor) {
	*major = dialect == Dialect::cuda ? 13 : 9, *minor = 0;
	return done;
}

extern "C" __attribute__((visibility("default"))) const char *
#ifdef EMULATED_CUDA
nvrtcGetErrorString
#else
hiprtcGetErrorString
#endif
    (int r) {
	switch (r) {
	case done:
		return "success";
	case invalid_input:
		return "invalid input";
	case invalid_program:
		return "invalid program";
	case compilation:
		return "compilation error";
	}
	return "unknown error";
}

// Headers given by name aren't taken.
EXPORT(nvrtcCreateProgram, hiprtcCreateProgram)
(Program **p, const char *source, const char *name, int headers, const char **, const char **) {
	if (headers != 0 || !source)
		return invalid_input;
	*p = new Program{source, name ? name : "default_program"};
	return done;
}

EXPORT(nvrtcDestroyProgram, hiprtcDestroyProgram)(Program **p) {
	if (!p || !*p)
		return invalid_program;
	delete *p;
	*p = nullptr;
	return done;
}

EXPORT(nvrtcCompileProgram, hiprtcCompileProgram)(Program *p, int n, const char **options) {
	if (!p)
		return invalid_program;
	p->compiled = compile(dialect, p->source, p->name, std::vector<std::string>(options, options + n));
	return p->compiled.done ? done : compilation;
}

EXPORT(nvrtcGetProgramLogSize, hiprtcGetProgramLogSize)(Program *p, size_t *n) {
	*n = p->compiled.log.size() + 1;
	return done;
}
EXPORT(nvrtcGetProgramLog, hiprtcGetProgramLog)(Program *p, char *to) { return give(p->compiled.log, to, 1); }
EXPORT(nvrtcGetPTXSize, hiprtcGetCodeSize)(Program *p, size_t *n) {
	*n = p->compiled.image.size();
	return p->compiled.done ? done : invalid_program;
}
EXPORT(nvrtcGetPTX, hiprtcGetCode)(Program *p, char *to) { return give(p->compiled.image, to, 0); }

#ifdef EMULATED_CUDA
EXPORT(nvrtcGetCUBINSize, )(Program *p, size_t *n) { return nvrtcGetPTXSize(p, n); }
EXPORT(nvrtcGetCUBIN, )(Program *p, char *to) { return nvrtcGetPTX(p, to); }
EXPORT(nvrtcGetNumSupportedArchs, )(int *n) {
	*n = 3;
	return done;
}
EXPORT(nvrtcGetSupportedArchs, )(int *list) {
	list[0] = 75, list[1] = 80, list[2] = 90;
	return done;
}
#endif
