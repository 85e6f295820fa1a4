// The functions of modules and kernels.
#include <cstring>

#include "client.h"

using namespace emulated;

static Result load(Handle *module, const char *image, std::string &why) {
	int device;
	if (!current_device(device))
		return invalid_context;
	Image header;
	if (strncmp(image, magic_of_image, sizeof magic_of_image) != 0) {
		why = "the image is none of an emulated GPU";
		return invalid_image;
	}
	memcpy(&header, image, sizeof header);
	Exchange x(Call::module_load);
	x.payload.assign(image, header.bytes);
	Result r = Client::the().call(x);
	if (r == success)
		*module = x.reply.words[0];
	else
		why = x.payload;
	return r;
}

EXPORT(cuModuleLoadData, hipModuleLoadData)(Handle *module, const char *image) {
	COUNT;
	std::string why;
	return load(module, image, why);
}

#ifdef EMULATED_CUDA
// Of the options, the log of errors and its size are known.
EXPORT(cuModuleLoadDataEx, )(Handle *module, const char *image, unsigned n, int *options, void **values) {
	COUNT;
	char *log = nullptr;
	size_t bytes = 0;
	for (unsigned i = 0; i < n; i++) {
		if (options[i] == 5)
			log = static_cast<char *>(values[i]);
		else if (options[i] == 6)
			bytes = reinterpret_cast<size_t>(values[i]);
		else
			return invalid_value;
	}
	std::string why;
	Result r = load(module, image, why);
	if (r != success && log && bytes > 0) {
		why.resize(std::min(why.size(), bytes - 1));
		memcpy(log, why.c_str(), why.size() + 1);
	}
	return r;
}
#endif

static Result unload(Handle module) {
	Client &c = Client::the();
	if (Result r = c.idle(); r != success)
		return r;
	return c.call(Exchange(Call::module_unload, module));
}

EXPORT(cuModuleUnload, hipModuleUnload)(Handle module) {
	COUNT;
	return unload(module);
}

static Result find(Handle *function, Handle module, const char *name) {
	Exchange x(Call::module_function, module);
	x.payload = name;
	Client &c = Client::the();
	Result r = c.call(x);
	if (r != success)
		return r;
	Signature f{};
	f.static_shared = x.reply.words[1], f.local = x.reply.words[2];
	f.registers = int(x.reply.words[3]), f.max_threads = int(x.reply.words[4]);
	f.parameters.resize(x.payload.size() / sizeof(Parameter));
	memcpy(f.parameters.data(), x.payload.data(), x.payload.size());
	*function = x.reply.words[0];
	std::lock_guard lock(c.mutex);
	c.functions[*function] = std::move(f);
	return success;
}

EXPORT(cuModuleGetFunction, hipModuleGetFunction)(Handle *function, Handle module, const char *name) {
	COUNT;
	return find(function, module, name);
}

static bool known(Handle h, Signature &f) {
	Client &c = Client::the();
	std::lock_guard lock(c.mutex);
	auto i = c.functions.find(h);
	if (i == c.functions.end())
		return false;
	f = i->second;
	return true;
}

EXPORT(cuFuncGetAttribute, hipFuncGetAttribute)(int *value, int number, Handle h) {
	COUNT;
	Signature f;
	if (!known(h, f))
		return invalid_handle;
	switch (number) {
	case 0:
		*value = f.max_threads;
		return success;
	case 1:
		*value = int(f.static_shared);
		return success;
	case 3:
		*value = int(f.local);
		return success;
	case 4:
		*value = f.registers;
		return success;
	}
	return invalid_value;
}

#ifdef EMULATED_CUDA
EXPORT(cuFuncSetAttribute, )(Handle h, int number, int value) {
	COUNT;
	if (number != 8 || value < 0)
		return invalid_value;
	return Client::the().call(Exchange(Call::function_shared, h, value));
}

namespace {

// Code is an image, and its modules on the devices that have needed it.
struct Code {
	std::string image;
	std::map<int, Handle> modules;
};

// Kernel is one without a context, and its functions on the devices where it was launched.
struct Kernel {
	Code *code;
	std::string name;
	std::map<int, Handle> functions;
};

std::mutex of_code;
std::map<Handle, Code> codes;
std::map<Handle, Kernel> kernels;
Handle last = Handle(1) << 60; // which no other handle is

// function is a kernel's on a device, where its code may not have been needed yet. of_code is locked.
Result function(Kernel &k, int device, Handle &f) {
	auto i = k.functions.find(device);
	if (i != k.functions.end()) {
		f = i->second;
		return success;
	}
	Handle &module = k.code->modules[device];
	std::string why;
	current.contexts.push_back(device);
	Result r = module ? success : load(&module, k.code->image.data(), why);
	if (r == success)
		r = find(&f, module, k.name.c_str());
	current.contexts.pop_back();
	if (r == success)
		k.functions[device] = f;
	return r;
}

} // namespace

EXPORT(cuLibraryLoadData, )
(Handle *code, const char *image, int *, void **, unsigned n, int *, void **, unsigned m) {
	COUNT;
	Image header;
	if (strncmp(image, magic_of_image, sizeof magic_of_image) != 0)
		return invalid_image;
	if (n > 0 || m > 0)
		return invalid_value;
	memcpy(&header, image, sizeof header);
	std::lock_guard lock(of_code);
	*code = ++last;
	codes[*code].image.assign(image, header.bytes);
	return success;
}

EXPORT(cuLibraryUnload, )(Handle h) {
	COUNT;
	std::lock_guard lock(of_code);
	auto i = codes.find(h);
	if (i == codes.end())
		return invalid_handle;
	std::erase_if(kernels, [&](auto &k) { return k.second.code == &i->second; });
	Result r = success;
	for (auto [device, module] : i->second.modules) {
		current.contexts.push_back(device);
		if (Result x = unload(module); x != success)
			r = x;
		current.contexts.pop_back();
	}
	codes.erase(i);
	return r;
}

EXPORT(cuLibraryGetModule, )(Handle *module, Handle h) {
	COUNT;
	int device;
	if (!current_device(device))
		return invalid_context;
	std::lock_guard lock(of_code);
	auto i = codes.find(h);
	if (i == codes.end())
		return invalid_handle;
	std::string why;
	auto had = i->second.modules.find(device);
	if (had == i->second.modules.end()) {
		if (Result r = load(module, i->second.image.data(), why); r != success)
			return r;
		had = i->second.modules.emplace(device, *module).first;
	}
	*module = had->second;
	return success;
}

EXPORT(cuLibraryGetKernel, )(Handle *kernel, Handle h, const char *name) {
	COUNT;
	std::lock_guard lock(of_code);
	auto i = codes.find(h);
	if (i == codes.end())
		return invalid_handle;
	*kernel = ++last;
	kernels[*kernel] = Kernel{&i->second, name, {}};
	return success;
}

EXPORT(cuKernelSetAttribute, )(int number, int value, Handle h, int device) {
	COUNT;
	if (number != 8 || value < 0)
		return invalid_value;
	std::lock_guard lock(of_code);
	auto i = kernels.find(h);
	if (i == kernels.end())
		return invalid_handle;
	Handle f;
	if (Result r = function(i->second, device, f); r != success)
		return r;
	return Client::the().call(Exchange(Call::function_shared, f, value));
}

// Place makes a kernel the function on the stream's device, which is current then, until it ends.
class Place {
  public:
	Result take(Handle &h, Handle stream) {
		std::lock_guard lock(of_code);
		auto i = kernels.find(h);
		if (i == kernels.end())
			return success;
		Exchange x(Call::stream_device, stream);
		if (Result r = Client::the().call(x); r != success)
			return r;
		int device = int(x.reply.words[0]);
		current.contexts.push_back(device);
		taken = true;
		return function(i->second, device, h);
	}
	~Place() {
		if (taken)
			current.contexts.pop_back();
	}

  private:
	bool taken = false;
};

EXPORT(cuFuncGetParamInfo, )(Handle h, size_t i, size_t *at, size_t *bytes) {
	COUNT;
	Signature f;
	if (!known(h, f))
		return invalid_handle;
	if (i >= f.parameters.size())
		return invalid_value;
	*at = f.parameters[i].offset;
	if (bytes)
		*bytes = f.parameters[i].bytes;
	return success;
}
#endif

EXPORT(cuLaunchKernel, hipModuleLaunchKernel)
(Handle h, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, Handle stream,
    void **arguments, void **extra) {
	COUNT;
#ifdef EMULATED_CUDA
	Place place;
	if (Result r = place.take(h, stream); r != success)
		return r;
#endif
	int device;
	if (!current_device(device))
		return invalid_context;
	if (extra)
		return invalid_value;
	Client &c = Client::the();
	Exchange x(Call::launch, h, gx, gy, gz, bx, by, bz, shared, stream);
	{
		std::lock_guard lock(c.mutex);
		auto i = c.functions.find(h);
		if (i == c.functions.end())
			return invalid_handle;
		const auto &list = i->second.parameters;
		if (!list.empty()) {
			if (!arguments)
				return invalid_value;
			x.payload.resize(list.back().offset + list.back().bytes);
			for (size_t k = 0; k < list.size(); k++)
				memcpy(x.payload.data() + list[k].offset, arguments[k], list[k].bytes);
		}
	}
	return c.call(x);
}
