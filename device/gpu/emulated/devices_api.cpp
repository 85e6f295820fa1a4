// The functions of devices, contexts and errors.
#include <cstdio>
#include <cstring>

#include "client.h"

using namespace emulated;

namespace {

struct Text {
	Result r;
	const char *name, *text;
};
const Text texts[] = {
    {success, "SUCCESS", "no error"},
    {invalid_value, "ERROR_INVALID_VALUE", "invalid argument"},
    {out_of_memory, "ERROR_OUT_OF_MEMORY", "out of memory"},
    {not_initialized, "ERROR_NOT_INITIALIZED", "initialization error"},
    {invalid_configuration, "ERROR_INVALID_CONFIGURATION", "invalid configuration argument"},
    {no_device, "ERROR_NO_DEVICE", "no device is detected"},
    {invalid_device, "ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {invalid_image, "ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {invalid_context, "ERROR_INVALID_CONTEXT", "invalid device context"},
    {peer_access_unsupported, "ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported"},
    {invalid_handle, "ERROR_INVALID_HANDLE", "invalid resource handle"},
    {not_found, "ERROR_NOT_FOUND", "named symbol not found"},
    {not_ready, "ERROR_NOT_READY", "device not ready"},
    {illegal_address, "ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {peer_access_enabled, "ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
    {peer_access_not_enabled, "ERROR_PEER_ACCESS_NOT_ENABLED", "peer access has not been enabled"},
    {assertion, "ERROR_ASSERT", "device-side assert triggered"},
    {misaligned_address, "ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {launch_failed, "ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {not_supported, "ERROR_NOT_SUPPORTED", "operation not supported"},
    {capture_unsupported, "ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {capture_invalidated, "ERROR_STREAM_CAPTURE_INVALIDATED",
        "operation failed due to a previous error during capture"},
    {capture_merge, "ERROR_STREAM_CAPTURE_MERGE", "operation would result in a merge of separate capture sequences"},
    {capture_unmatched, "ERROR_STREAM_CAPTURE_UNMATCHED", "capture was not ended in the same stream as it began"},
    {capture_unjoined, "ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
    {capture_isolation, "ERROR_STREAM_CAPTURE_ISOLATION", "dependency created on uncaptured work in another stream"},
    {captured_event, "ERROR_CAPTURED_EVENT", "operation not permitted on an event last recorded in a capturing stream"},
    {capture_wrong_thread, "ERROR_STREAM_CAPTURE_WRONG_THREAD",
        "attempt to terminate a thread-local capture sequence from another thread"},
    {update_failure, "ERROR_GRAPH_EXEC_UPDATE_FAILURE", "the graph update was not performed"},
    {unknown, "ERROR_UNKNOWN", "unknown error"},
};

#ifdef EMULATED_CUDA
#define PREFIX "CUDA_"
#else
#define PREFIX "HIP_"
#endif

const char *name_of(Result r) {
	static std::map<Result, std::string> *names = [] {
		auto all = new std::map<Result, std::string>;
		for (const Text &t : texts)
			(*all)[t.r] = std::string(PREFIX) + t.name;
		return all;
	}();
	auto i = names->find(r);
	return i == names->end() ? nullptr : i->second.c_str();
}

const char *text_of(Result r) {
	for (const Text &t : texts)
		if (t.r == r)
			return t.text;
	return nullptr;
}

// Attributes have numbers of their own in each library.
struct Numbered {
	int cuda, hip;
	int value;
};

bool attribute(int number, int &value) {
	const Settings &s = Client::the().settings;
	const Numbered all[] = {
	    {16, 63, int(s.units)}, // multiprocessors
	    {75, 23, 9},            // the major and minor of the architecture: sm_90 and gfx942
	    {76, 61, dialect == Dialect::cuda ? 0 : 4}, {8, 74, int(plain_shared(dialect))}, // shared memory of a block
	    {97, -1, int(most_shared(dialect))},                                             // where a function asks for it
	    {78, 78, 1},                                                                     // priorities of streams
	    {10, 87, dialect == Dialect::cuda ? 32 : 64},                                    // threads in lockstep
	};
	for (const Numbered &n : all)
		if ((dialect == Dialect::cuda ? n.cuda : n.hip) == number) {
			value = n.value;
			return true;
		}
	return false;
}

bool known(int device) { return device >= 0 && device < int(Client::the().settings.devices); }

Result peer(int peer, bool on) {
	int device;
	if (!current_device(device))
		return invalid_context;
	if (!known(peer) || peer == device)
		return invalid_device;
	Client &c = Client::the();
	std::lock_guard lock(c.mutex);
	bool &enabled = c.peers[device][peer];
	if (enabled == on)
		return on ? peer_access_enabled : peer_access_not_enabled;
	enabled = on;
	return success;
}

} // namespace

EXPORT(cuInit, hipInit)(unsigned flags) {
	COUNT;
	return flags != 0 ? invalid_value : Client::the().start();
}

EXPORT(cuDriverGetVersion, hipRuntimeGetVersion)(int *version) {
	COUNT;
	*version = dialect == Dialect::cuda ? 13000 : 60443484;
	return success;
}

EXPORT(cuDeviceGetCount, hipGetDeviceCount)(int *n) {
	COUNT;
	if (Result r = Client::the().start(); r != success)
		return r;
	*n = int(Client::the().settings.devices);
	return success;
}

EXPORT(cuDeviceGet, hipDeviceGet)(int *device, int i) {
	COUNT;
	*device = i;
	return known(i) ? success : invalid_device;
}

EXPORT(cuDeviceGetName, hipDeviceGetName)(char *text, int n, int device) {
	COUNT;
	if (!known(device))
		return invalid_device;
	// Compiled kernels are kept by this name, and are others without the checks.
	snprintf(text, size_t(n), "Emulated GPU%s", Client::the().settings.checked ? "" : ", without checks");
	return success;
}

EXPORT(cuDeviceGetAttribute, hipDeviceGetAttribute)(int *value, int number, int device) {
	COUNT;
	if (!known(device))
		return invalid_device;
	return attribute(number, *value) ? success : invalid_value;
}

EXPORT(cuDeviceTotalMem_v2, hipDeviceTotalMem)(size_t *bytes, int device) {
	COUNT;
	*bytes = Client::the().settings.memory;
	return known(device) ? success : invalid_device;
}

EXPORT(cuDeviceGetUuid_v2, hipDeviceGetUuid)(unsigned char *id, int device) {
	COUNT;
	memcpy(id, dialect == Dialect::cuda ? "EMULATED-CUDA--" : "EMULATED-HIP---", 15);
	id[15] = (unsigned char)device;
	return known(device) ? success : invalid_device;
}

EXPORT(cuCtxGetStreamPriorityRange, hipDeviceGetStreamPriorityRange)(int *least, int *greatest) {
	COUNT;
	*least = 0, *greatest = -1;
	int device;
	return current_device(device) ? success : invalid_context;
}

EXPORT(cuDeviceCanAccessPeer, hipDeviceCanAccessPeer)(int *can, int device, int peer) {
	COUNT;
	*can = device != peer;
	return known(device) && known(peer) ? success : invalid_device;
}

EXPORT(cuThreadExchangeStreamCaptureMode, hipThreadExchangeStreamCaptureMode)(int *mode) {
	COUNT;
	if (*mode < mode_global || *mode > mode_relaxed)
		return invalid_value;
	std::swap(*mode, current.mode);
	return success;
}

#ifdef EMULATED_CUDA

// A context's handle has its device in it.
constexpr uint64_t contexts = 0xc0de0;

EXPORT(cuDevicePrimaryCtxRetain, )(uint64_t *context, int device) {
	COUNT;
	Client &c = Client::the();
	if (!known(device))
		return invalid_device;
	std::lock_guard lock(c.mutex);
	c.retained[size_t(device)]++;
	*context = contexts + uint64_t(device);
	return success;
}

EXPORT(cuDevicePrimaryCtxRelease_v2, )(int device) {
	COUNT;
	Client &c = Client::the();
	std::lock_guard lock(c.mutex);
	if (!known(device) || c.retained[size_t(device)] == 0)
		return invalid_context;
	c.retained[size_t(device)]--;
	return success;
}

EXPORT(cuCtxPushCurrent_v2, )(uint64_t context) {
	COUNT;
	Client &c = Client::the();
	std::lock_guard lock(c.mutex);
	if (context < contexts || !known(int(context - contexts)) || c.retained[context - contexts] == 0)
		return invalid_context;
	current.contexts.push_back(int(context - contexts));
	return success;
}

EXPORT(cuCtxPopCurrent_v2, )(uint64_t *context) {
	COUNT;
	int device;
	if (!current_device(device))
		return invalid_context;
	if (context)
		*context = contexts + uint64_t(device);
	current.contexts.pop_back();
	return success;
}

EXPORT(cuCtxGetCurrent, )(uint64_t *context) {
	COUNT;
	int device;
	*context = current_device(device) ? contexts + uint64_t(device) : 0;
	return success;
}

EXPORT(cuStreamGetCtx, )(Handle stream, uint64_t *context) {
	COUNT;
	Exchange x(Call::stream_device, stream);
	Result r = Client::the().call(x);
	*context = contexts + x.reply.words[0];
	return r;
}

EXPORT(cuCtxEnablePeerAccess, )(uint64_t context, unsigned) {
	COUNT;
	return context < contexts ? invalid_context : peer(int(context - contexts), true);
}
EXPORT(cuCtxDisablePeerAccess, )(uint64_t context) {
	COUNT;
	return context < contexts ? invalid_context : peer(int(context - contexts), false);
}

EXPORT(cuGetErrorName, )(Result r, const char **text) {
	COUNT;
	*text = name_of(r);
	return *text ? success : invalid_value;
}
EXPORT(cuGetErrorString, )(Result r, const char **text) {
	COUNT;
	*text = text_of(r);
	return *text ? success : invalid_value;
}

#else

EXPORT(, hipGetDevice)(int *device) {
	COUNT;
	*device = current.device;
	return success;
}

EXPORT(, hipSetDevice)(int device) {
	COUNT;
	if (!known(device))
		return invalid_device;
	current.device = device;
	return success;
}

// Of the structure of ROCm 6 and later it has the name of the architecture.
EXPORT(, hipGetDevicePropertiesR0600)(char *properties, int device) {
	COUNT;
	constexpr size_t place = 1160, bytes = 1472;
	memset(properties, 0, bytes);
	strcpy(properties + place, "gfx942:sramecc+:xnack-");
	return known(device) ? success : invalid_device;
}

EXPORT(, hipStreamGetDevice)(Handle stream, int *device) {
	COUNT;
	Exchange x(Call::stream_device, stream);
	Result r = Client::the().call(x);
	*device = int(x.reply.words[0]);
	return r;
}

EXPORT(, hipDeviceEnablePeerAccess)(int device, unsigned) {
	COUNT;
	return peer(device, true);
}
EXPORT(, hipDeviceDisablePeerAccess)(int device) {
	COUNT;
	return peer(device, false);
}

extern "C" __attribute__((visibility("default"))) const char *hipGetErrorName(Result r) {
	return name_of(r) ? name_of(r) : "HIP_ERROR_UNKNOWN";
}
extern "C" __attribute__((visibility("default"))) const char *hipGetErrorString(Result r) {
	return text_of(r) ? text_of(r) : "unknown error";
}

#endif
