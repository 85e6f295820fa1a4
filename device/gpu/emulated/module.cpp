#include "module.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

namespace emulated {

namespace {

// A File is temporary. No two that are open have the same name: the dynamic linker takes one name for one library.
class File {
  public:
	File(const char *data, size_t bytes) {
		const char *tmp = getenv("TMPDIR");
		name = std::string(tmp != nullptr && *tmp != 0 ? tmp : "/tmp") + "/emulated-gpu-module-XXXXXX";
		int fd = mkostemp(&name[0], O_CLOEXEC);
		size_t at = 0;
		for (ssize_t n; fd >= 0 && at < bytes && (n = write(fd, data + at, bytes - at)) > 0;)
			at += (size_t)n;
		whole = fd >= 0 && at == bytes;
		if (fd >= 0)
			close(fd);
	}
	~File() { unlink(name.c_str()); }
	std::string name;
	bool whole;
};

// Places of a shared object in memory, by its dynamic section's address.
struct Places {
	uintptr_t base, end, tls;
	size_t tls_bytes;
};

bool places_of(uintptr_t base, Places &p) {
	struct Search {
		uintptr_t base;
		Places *to;
		bool found;
	} search{base, &p, false};
	dl_iterate_phdr(
	    [](dl_phdr_info *info, size_t, void *data) {
		    auto *s = (Search *)data;
		    if (info->dlpi_addr != s->base)
			    return 0;
		    *s->to = {s->base, s->base, (uintptr_t)info->dlpi_tls_data, 0};
		    for (int k = 0; k < info->dlpi_phnum; k++) {
			    const auto &h = info->dlpi_phdr[k];
			    if (h.p_type == PT_LOAD && s->base + h.p_vaddr + h.p_memsz > s->to->end)
				    s->to->end = s->base + h.p_vaddr + h.p_memsz;
			    if (h.p_type == PT_TLS)
				    s->to->tls_bytes = h.p_memsz;
		    }
		    s->found = true;
		    return 1;
	    },
	    &search);
	return search.found;
}

} // namespace

Module::~Module() {
	if (handle != nullptr)
		dlclose(handle);
}

std::unique_ptr<Module> Module::load(const void *image, size_t bytes, std::string &why) {
	Image header;
	if (bytes < sizeof header || std::memcmp(image, magic_of_image, sizeof magic_of_image) != 0) {
		why = "it isn't an image of the emulated compiler";
		return nullptr;
	}
	std::memcpy(&header, image, sizeof header);
	if (header.bytes > bytes || header.shared_object < sizeof header || header.shared_object >= header.bytes) {
		why = "an image of " + std::to_string(bytes) + " bytes isn't whole";
		return nullptr;
	}
	auto m = std::make_unique<Module>();
	const char *data = (const char *)image;
	m->source.assign(data + sizeof header, header.shared_object - sizeof header);
	m->object.assign(data + header.shared_object, header.bytes - header.shared_object);
	File file(m->object.data(), m->object.size());
	if (!file.whole || (m->handle = dlopen(file.name.c_str(), RTLD_NOW | RTLD_LOCAL)) == nullptr) {
		const char *text = file.whole ? dlerror() : std::strerror(errno);
		why = text != nullptr ? text : "the dynamic linker refuses it";
		return nullptr;
	}
	auto *list = (const Entry *)dlsym(m->handle, "emulated_entries");
	m->mark = (void *(*)())dlsym(m->handle, "emulated_shared_memory");
	link_map *map = nullptr;
	Places p;
	if (list == nullptr || m->mark == nullptr || dlinfo(m->handle, RTLD_DI_LINKMAP, &map) != 0 ||
	    !places_of(map->l_addr, p)) {
		why = "it has no list of kernels";
		return nullptr;
	}
	m->base = p.base, m->bytes = p.end - p.base, m->static_shared = p.tls_bytes;
	for (; list->name != nullptr; list++) {
		Function &f = m->functions[list->name];
		f.module = m.get(), f.call = list->call;
		f.about.name = list->name, f.about.static_shared = (m->static_shared - 1) & ~(size_t)15;
		f.about.registers = 32, f.about.max_threads = list->max_threads;
		f.about.parameters.assign(list->parameters, list->parameters + list->count);
		if (list->count > 0)
			f.argument_bytes = f.about.parameters.back().offset + f.about.parameters.back().bytes;
	}
	return m;
}

const Function *Module::find(const std::string &name) const {
	auto at = functions.find(name);
	return at == functions.end() ? nullptr : &at->second;
}

Range Module::shared_memory() const {
	if (static_shared <= 1)
		return {0, 0};
	mark(); // the thread has a copy from its first use on
	Places p;
	if (!places_of(base, p) || p.tls == 0)
		return {0, 0};
	return {p.tls, p.tls_bytes};
}

std::string Module::text_of(const std::string &file, unsigned line) const {
	std::string place = file + ":" + std::to_string(line);
	size_t at = 0;
	for (unsigned k = 1; k < line; k++) {
		at = source.find('\n', at);
		if (at == std::string::npos)
			return place;
		at++;
	}
	std::string text = source.substr(at, source.find('\n', at) - at);
	size_t first = text.find_first_not_of(" \t");
	return first == std::string::npos ? place : place + ": `" + text.substr(first) + "`";
}

// The tables of lines are read by a program that comes with compilers.
std::string Module::line_of(uintptr_t pc) const {
	std::string line = known_line_of(pc);
	return line.empty() ? "at offset " + std::to_string(pc - base) + " of its code" : line;
}

std::string Module::known_line_of(uintptr_t pc) const {
	if (!has(pc))
		return "";
	File file(object.data(), object.size());
	char command[256];
	snprintf(command, sizeof command, "addr2line -i -e %s 0x%zx 2>/dev/null", file.name.c_str(), pc - 1 - base);
	FILE *out = popen(command, "re");
	if (out == nullptr)
		return "";
	char line[512];
	std::string place;
	while (fgets(line, sizeof line, out) != nullptr) { // the innermost first; those of kernel.h aren't of the source
		std::string text(line);
		size_t colon = text.find(':');
		std::string name = text.substr(0, colon);
		name = name.substr(name.rfind('/') + 1);
		unsigned number = colon == std::string::npos ? 0 : (unsigned)strtoul(text.c_str() + colon + 1, nullptr, 10);
		if (number > 0 && name != "kernel.h") {
			place = text_of(name, number);
			break;
		}
	}
	pclose(out);
	return place;
}

} // namespace emulated
