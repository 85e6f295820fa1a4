// Modules and kernels.
#include <cstdio>
#include <fcntl.h>
#include <unistd.h>

#include "server.h"

namespace emulated {

Result Server::module_load(Message &m) {
	std::string image, why;
	std::swap(image, m.payload);
	if (!device(m.request))
		return invalid_context;
	Module *module = executor->load(image.data(), image.size(), why);
	if (!module) {
		m.payload = why;
		return invalid_image;
	}
	m.out(0) = add(modules, std::shared_ptr<Loaded>(new Loaded{*executor, module, m.request.device}));
	return success;
}

// A module whose kernels graphs have stays with them.
Result Server::module_unload(Handle h) {
	auto *loaded = find(modules, h);
	if (!loaded)
		return invalid_handle;
	std::erase_if(kernels, [&](auto &k) { return k.second.loaded == *loaded; });
	modules.erase(h);
	return success;
}

Result Server::module_function(Message &m) {
	std::string name;
	std::swap(name, m.payload);
	auto *loaded = find(modules, m[0]);
	if (!loaded)
		return invalid_handle;
	const Function *f = executor->find((*loaded)->module, name);
	if (!f)
		return not_found;
	const About &about = executor->about(f);
	size_t plain = plain_shared(dialect);
	size_t room = plain > about.static_shared ? plain - about.static_shared : 0;
	m.out(0) = add(kernels, Kernel{*loaded, f, room});
	m.out(1) = about.static_shared, m.out(2) = about.local;
	m.out(3) = uint64_t(about.registers), m.out(4) = uint64_t(about.max_threads);
	m.payload.assign(
	    reinterpret_cast<const char *>(about.parameters.data()), about.parameters.size() * sizeof(Parameter));
	return success;
}

Result Server::function_shared(Handle h, size_t bytes) {
	Kernel *k = find(kernels, h);
	if (!k)
		return invalid_handle;
	if (bytes + executor->about(k->function).static_shared > most_shared(dialect))
		return invalid_value;
	k->dynamic = bytes;
	return success;
}

Result Server::launch(Message &m) {
	Kernel *k = find(kernels, m[0]);
	Stream *s = find(streams, m[8]);
	if (!k || !s || k->loaded->device != s->device)
		return invalid_handle;
	Dim grid{unsigned(m[1]), unsigned(m[2]), unsigned(m[3])}, block{unsigned(m[4]), unsigned(m[5]), unsigned(m[6])};
	uint64_t threads = uint64_t(block.x) * block.y * block.z;
	const About &about = executor->about(k->function);
	if (grid.x == 0 || grid.y == 0 || grid.z == 0 || threads == 0 || grid.x > most_x || grid.y > most_y ||
	    grid.z > most_y || block.z > 64 || threads > uint64_t(about.max_threads) || m[7] > k->dynamic)
		return invalid_value;
	// HIP counts threads of a grid's dimension with 32 bits.
	if (dialect == Dialect::hip &&
	    (uint64_t(grid.x) * block.x >> 32 || uint64_t(grid.y) * block.y >> 32 || uint64_t(grid.z) * block.z >> 32))
		return invalid_configuration;
	std::string arguments;
	std::swap(arguments, m.payload);
	int device = s->device;
	auto loaded = k->loaded;
	Launch launch{k->function, grid, block, m[7], nullptr};
	return enqueue(m[8], node_kernel, [=, this] {
		Launch with = launch;
		with.arguments = reinterpret_cast<const unsigned char *>(arguments.data());
		run(device, loaded, with);
	});
}

// report says what is wrong with a kernel, to people and to tests.
static void report(const std::string &text) {
	std::string line = "emulated GPU: " + text + "\n";
	fputs(line.c_str(), stderr);
	const char *path = getenv("EMULATED_GPU_REPORT");
	if (!path || !*path)
		return;
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0600);
	if (fd < 0 || write(fd, line.data(), line.size()) < 0)
		perror("emulated GPU: EMULATED_GPU_REPORT");
	if (fd >= 0)
		close(fd);
}

// run is a kernel's turn, with the faults that the environment asks for.
void Server::run(int device, const std::shared_ptr<Loaded> &, const Launch &launch) {
	uint64_t number = ++devices[device].kernels;
	const std::string &name = executor->about(launch.function).name;
	if (settings.delay)
		usleep(useconds_t(settings.delay));
	if (settings.lost_after && number > settings.lost_after) {
		report("device " + std::to_string(device) + " is lost before " + name + ", as EMULATED_GPU_LOST_AFTER says");
		return lose(device, unknown);
	}
	if (settings.fail_at == number) {
		report(name + " fails, as EMULATED_GPU_FAIL_AT says");
		return lose(device, launch_failed);
	}
	Outcome outcome = executor->launch(launch);
	if (outcome.fault == Fault::none)
		return;
	report(outcome.text);
	switch (outcome.fault) {
	case Fault::illegal_address:
		return lose(device, illegal_address);
	case Fault::misaligned_address:
		return lose(device, misaligned_address);
	case Fault::assertion:
		return lose(device, assertion);
	default:
		return lose(device, launch_failed);
	}
}

} // namespace emulated
