// The functions of memory.
#include <sys/mman.h>

#include "client.h"

using namespace emulated;

namespace {

bool no_context() {
	int device;
	return !current_device(device);
}

// attribute is one of a pointer's: its kind of memory, device, and the allocation's place and size.
Result attribute(int number, uintptr_t p, uint64_t &value, size_t &bytes) {
	auto [base, a] = Client::the().place(p);
	bytes = 4, value = 0;
	switch (number) {
	case 2:
		value = a.device < 0 ? 1 : 2;
		break;
	case 9:
		value = uint64_t(a.device < 0 ? 0 : a.device);
		break;
	case 11:
		value = base, bytes = 8;
		break;
	case 12:
		value = a.bytes, bytes = 8;
		break;
	default:
		return invalid_value;
	}
	if (a.bytes == 0)
		value = 0;
	return a.bytes == 0 ? invalid_value : success;
}

} // namespace

EXPORT(cuMemAlloc_v2, hipMalloc)(uintptr_t *p, size_t bytes) {
	COUNT;
	int device;
	if (!current_device(device))
		return invalid_context;
	if (bytes == 0 && dialect == Dialect::hip) {
		*p = 0;
		return success;
	}
	Exchange x(Call::allocate, bytes);
	Result r = Client::the().call(x);
	if (r == success) {
		*p = x.reply.words[0];
		Client::the().add(*p, {bytes, device});
	}
	return r;
}

// Freeing waits for all work, as the libraries do.
EXPORT(cuMemFree_v2, hipFree)(uintptr_t p) {
	COUNT;
	if (no_context())
		return invalid_context;
	Client &c = Client::the();
	auto [base, a] = c.place(p);
	if (p == 0)
		return success;
	if (a.bytes == 0 || base != p || a.device < 0)
		return invalid_value;
	if (Result r = c.idle(); r != success)
		return r;
	if (!c.remove(p, false, a))
		return invalid_value;
	return c.call(Exchange(Call::release, p));
}

static Result pin(uintptr_t *p, size_t bytes) {
	Exchange x(Call::pin, bytes);
	Client &c = Client::the();
	Result r = c.call(x);
	if (r != success)
		return r;
	*p = x.reply.words[0];
	size_t pages = (bytes + 4095) / 4096 * 4096;
	if (mprotect(reinterpret_cast<void *>(*p / 4096 * 4096), pages, PROT_READ | PROT_WRITE) != 0)
		return out_of_memory;
	c.add(*p, {bytes, -1});
	return success;
}

EXPORT(cuMemHostAlloc, hipHostMalloc)(uintptr_t *p, size_t bytes, unsigned) {
	COUNT;
	return no_context() ? invalid_context : bytes == 0 ? invalid_value : pin(p, bytes);
}

EXPORT(cuMemFreeHost, hipHostFree)(uintptr_t p) {
	COUNT;
	if (no_context())
		return invalid_context;
	Client &c = Client::the();
	Allocation a;
	auto [base, found] = c.place(p);
	if (found.bytes == 0 || base != p || found.device >= 0)
		return invalid_value;
	if (Result r = c.idle(); r != success)
		return r;
	if (!c.remove(p, true, a))
		return invalid_value;
	mprotect(reinterpret_cast<void *>(p), (a.bytes + 4095) / 4096 * 4096, PROT_NONE);
	return c.call(Exchange(Call::unpin, p));
}

#ifndef EMULATED_CUDA
EXPORT(, hipExtMallocWithFlags)(uintptr_t *p, size_t bytes, unsigned flags) {
	COUNT;
	if (bytes != 8 || flags != 2)
		return invalid_value;
	return pin(p, bytes);
}
#endif

EXPORT(cuMemGetInfo_v2, hipMemGetInfo)(size_t *free, size_t *total) {
	COUNT;
	if (no_context())
		return invalid_context;
	Exchange x(Call::memory);
	Result r = Client::the().call(x);
	*free = x.reply.words[0], *total = x.reply.words[1];
	return r;
}

EXPORT(cuPointerGetAttribute, hipPointerGetAttribute)(void *data, int number, uintptr_t p) {
	COUNT;
	uint64_t value;
	size_t bytes;
	Result r = attribute(number, p, value, bytes);
	if (r != success)
		return r;
	if (bytes == 8)
		*static_cast<uint64_t *>(data) = value;
	else
		*static_cast<uint32_t *>(data) = uint32_t(value);
	return success;
}

EXPORT(cuPointerGetAttributes, hipDrvPointerGetAttributes)
(unsigned n, int *numbers, void **data, uintptr_t p) {
	COUNT;
	for (unsigned i = 0; i < n; i++) {
		uint64_t value;
		size_t bytes;
		attribute(numbers[i], p, value, bytes); // 0 of a pointer that isn't known
		if (bytes == 8)
			*static_cast<uint64_t *>(data[i]) = value;
		else
			*static_cast<uint32_t *>(data[i]) = uint32_t(value);
	}
	return success;
}

EXPORT(cuMemsetD8Async, hipMemsetD8Async)(uintptr_t p, unsigned char value, size_t bytes, Handle stream) {
	COUNT;
	if (no_context())
		return invalid_context;
	auto [base, a] = Client::the().place(p);
	if (bytes == 0)
		return success;
	if (a.bytes == 0 || bytes > a.bytes - (p - base))
		return invalid_value;
	return Client::the().call(Exchange(Call::fill, p, value, bytes, stream));
}

#ifdef EMULATED_CUDA
EXPORT(cuMemcpyAsync, )(uintptr_t to, uintptr_t from, size_t bytes, Handle stream) {
	COUNT;
	return no_context() ? invalid_context : Client::the().copy(to, from, bytes, stream);
}
#else
EXPORT(, hipMemcpyAsync)(uintptr_t to, uintptr_t from, size_t bytes, int kind, Handle stream) {
	COUNT;
	return kind != 4 ? invalid_value : Client::the().copy(to, from, bytes, stream); // 4: by the addresses
}
#endif
