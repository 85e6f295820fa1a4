// The compiler of the emulated GPUs: the host's, which gets kernel.h before the source.
#include "executor.h"
#include "source.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <spawn.h>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

// The text of kernel.h. The build says where it is.
asm(".section .rodata\n"
    "emulated_kernel_h:\n"
    ".incbin \"" EMULATED_SOURCES "/kernel.h\"\n"
    ".byte 0\n"
    ".previous\n");
extern "C" const char emulated_kernel_h[] __attribute__((visibility("hidden")));

namespace emulated {

namespace {

// A Folder is temporary.
class Folder {
  public:
	Folder() {
		const char *tmp = getenv("TMPDIR");
		path = std::string(tmp != nullptr && *tmp != 0 ? tmp : "/tmp") + "/emulated-gpu-XXXXXX";
		if (mkdtemp(&path[0]) == nullptr)
			path.clear();
	}
	~Folder() {
		for (const char *name : {"source.cpp", "module.so", "log"})
			unlink((path + "/" + name).c_str());
		if (!path.empty())
			rmdir(path.c_str());
	}
	std::string path; // empty: there is none
};

std::string read_file(const std::string &name) {
	std::ifstream in(name, std::ios::binary);
	std::ostringstream text;
	text << in.rdbuf();
	return text.str();
}

bool in_path(const std::string &program) {
	std::istringstream folders(getenv("PATH") == nullptr ? "" : getenv("PATH"));
	for (std::string folder; std::getline(folders, folder, ':');)
		if (access((folder + "/" + program).c_str(), X_OK) == 0)
			return true;
	return false;
}

// host_compiler is EMULATED_GPU_COMPILER, or what is found.
std::string host_compiler() {
	const char *set = getenv("EMULATED_GPU_COMPILER");
	if (set != nullptr && *set != 0)
		return set;
	for (const char *name : {"clang++", "g++"})
		if (in_path(name))
			return name;
	return "c++";
}

// run runs a program, with its output in a file. It returns the exit status, or -1 with why.
int run(const std::vector<std::string> &command, const std::string &log, std::string &why) {
	std::vector<char *> args;
	for (const std::string &s : command)
		args.push_back(const_cast<char *>(s.c_str()));
	args.push_back(nullptr);
	posix_spawn_file_actions_t files;
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_addopen(&files, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
	posix_spawn_file_actions_adddup2(&files, 1, 2);
	std::vector<char *> environment; // without what makes programs run on the emulated GPU, or speak another language
	for (char **e = environ; *e != nullptr; e++)
		if (strncmp(*e, "LD_LIBRARY_PATH=", 16) != 0 && strncmp(*e, "LD_PRELOAD=", 11) != 0 &&
		    strncmp(*e, "LC_ALL=", 7) != 0)
			environment.push_back(*e);
	char language[] = "LC_ALL=C";
	environment.push_back(language);
	environment.push_back(nullptr);
	pid_t pid = 0;
	int err = posix_spawnp(&pid, args[0], &files, nullptr, args.data(), environment.data());
	posix_spawn_file_actions_destroy(&files);
	if (err != 0) {
		why = "running " + command[0] + ": " + std::strerror(err);
		return -1;
	}
	int status = 0;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR) {
			why = std::string("waiting for the compiler: ") + std::strerror(errno);
			return -1;
		}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool checks() {
	const char *set = getenv("EMULATED_GPU_CHECKS");
	return set == nullptr || strcmp(set, "off") != 0;
}

// wraps reports whether a kernel computes in 32 bits, where sums of numbers wrap as PyTorch's do: what overflows may be
// one of these. The same kernel for other numbers has the same indexes.
bool wraps(const std::string &source) { return source.find("typedef i32 T;") != std::string::npos; }

std::vector<std::string> command_of(
    const std::string &compiler, const std::string &source, const std::vector<std::string> &options) {
	std::vector<std::string> command = {compiler, "-x", "c++", "-std=c++17", "-w", "-g1", "-fPIC", "-shared",
	    "-nostdlib", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti", "-ffp-contract=off", "-fno-strict-aliasing",
	    "-fno-stack-protector"};
	auto add = [&](std::initializer_list<const char *> list) {
		command.insert(command.end(), list.begin(), list.end());
	};
	if (checks()) {
		add({"-O1", "-fsanitize=thread", "-fsanitize=alignment"});
		add({wraps(source) ? "-fwrapv" : "-fsanitize=signed-integer-overflow"});
		if (compiler.find("clang") != std::string::npos)
			add({"-mllvm", "-tsan-distinguish-volatile=1", "-mllvm", "-tsan-instrument-func-entry-exit=0"});
		else
			add({"--param", "tsan-distinguish-volatile=1", "--param", "tsan-instrument-func-entry-exit=0"});
		add({"-Wl,--wrap=memcpy,--wrap=memmove,--wrap=memset"});
	} else {
		add({"-O2", "-fwrapv"});
	}
	for (const std::string &o : options)
		if (o.rfind("-D", 0) == 0 || o.rfind("-U", 0) == 0)
			command.push_back(o);
	return command;
}

} // namespace

Compiled compile(
    Dialect dialect, const std::string &source, const std::string &name, const std::vector<std::string> &options) {
	std::string failed;
	Source as_host;
	if (!as_host.translate(source, failed))
		return {false, "", name + ": " + failed + "\n"};
	Folder folder;
	if (folder.path.empty())
		return {false, "", std::string("a temporary folder: ") + std::strerror(errno)};
	std::string file = folder.path + "/source.cpp", object = folder.path + "/module.so", log = folder.path + "/log";
	{
		std::ofstream out(file, std::ios::binary);
		out << (dialect == Dialect::hip ? "#define EMULATED_WARP 64\n#define EMULATED_LANES ~0ull\n"
		                                : "#define EMULATED_WARP 32\n#define EMULATED_LANES 0xffffffffull\n");
		out << "#line 1 \"kernel.h\"\n" << emulated_kernel_h;
		out << "\n#line 1 \"" << name << "\"\n"
		    << as_host.text << "\n#line 1 \"kernel.h\"\n"
		    << as_host.entries << "\n";
		if (!out.flush())
			return {false, "", "writing " + file + ": " + std::strerror(errno)};
	}
	std::vector<std::string> command = command_of(host_compiler(), source, options);
	for (const std::string &s : {file, std::string("-o"), object})
		command.push_back(s);
	int status = run(command, log, failed);
	if (status != 0)
		return {false, "", status < 0 ? failed : read_file(log)};
	std::string made = read_file(object);
	Image header;
	std::memcpy(header.magic, magic_of_image, sizeof header.magic);
	header.shared_object = sizeof header + source.size();
	header.bytes = header.shared_object + made.size();
	return {true, std::string((const char *)&header, sizeof header) + source + made, read_file(log)};
}

} // namespace emulated
