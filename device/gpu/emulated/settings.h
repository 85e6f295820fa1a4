// Settings of an emulated GPU, from the environment.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "protocol.h"

namespace emulated {

inline uint64_t setting(const char *name, uint64_t otherwise) {
	const char *text = getenv(name);
	return text && *text ? strtoull(text, nullptr, 0) : otherwise;
}

struct Settings {
	unsigned devices = unsigned(std::clamp<uint64_t>(setting("EMULATED_GPU_DEVICES", 1), 1, most_devices));
	uint64_t memory = std::clamp<uint64_t>(setting("EMULATED_GPU_MEMORY", uint64_t(2) << 30), 1 << 20, window / 2);
	unsigned units = unsigned(setting("EMULATED_GPU_UNITS", 8));
	// Queues that streams share.
	unsigned queues = unsigned(std::clamp<uint64_t>(setting("EMULATED_GPU_QUEUES", 8), 1, most_queues));
	bool checked = std::string(getenv("EMULATED_GPU_CHECKS") ? getenv("EMULATED_GPU_CHECKS") : "") != "off";

	// Faults to inject. Kernels are counted from 1.
	uint64_t delay = setting("EMULATED_GPU_DELAY", 0);           // microseconds before each kernel
	uint64_t lost_after = setting("EMULATED_GPU_LOST_AFTER", 0); // kernels, after which the device is lost
	uint64_t fail_at = setting("EMULATED_GPU_FAIL_AT", 0);       // the kernel that fails
};

} // namespace emulated
