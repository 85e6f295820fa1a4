// The protocol of the library in the user's process and the server: calls with replies over one socket, functions of the
// host over another. Bytes of pageable memory go through slots that both have mapped.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "executor.h"

namespace emulated {

// Results of both libraries, which agree in them.
enum Result : int32_t {
	success = 0,
	invalid_value = 1,
	out_of_memory = 2,
	not_initialized = 3,
	invalid_configuration = 9, // of HIP
	no_device = 100,
	invalid_device = 101,
	invalid_image = 200,
	invalid_context = 201,
	peer_access_unsupported = 217,
	invalid_handle = 400,
	not_found = 500,
	not_ready = 600,
	illegal_address = 700,
	peer_access_enabled = 704,
	peer_access_not_enabled = 705,
	assertion = 710,
	misaligned_address = 716,
	launch_failed = 719,
	not_supported = 801,
	capture_unsupported = 900,
	capture_invalidated = 901,
	capture_merge = 902,
	capture_unmatched = 903,
	capture_unjoined = 904,
	capture_isolation = 905,
	captured_event = 907,
	capture_wrong_thread = 908,
	update_failure = 910,
	unknown = 999,
};

enum class Call : uint32_t {
	allocate,       // bytes -> address
	release,        // address
	pin,            // bytes -> address
	unpin,          // address
	memory,         // -> free, total
	fence,          // -> number, of what the queues of all devices have to do
	passed,         // number
	copy,           // to, from, bytes, stream
	copy_in,        // to, slot, bytes, stream
	copy_out,       // slot, from, bytes, stream
	copy_later,     // to, from, bytes, stream, way: a node of a graph, with pageable memory
	fill,           // address, value, bytes, stream
	stream_create,  // -> stream
	stream_destroy, // stream
	stream_query,
	stream_device,    // -> device
	stream_wait,      // stream, event
	stream_capturing, // -> status
	host_function,    // stream, function, argument
	wait_value,       // stream, address, value, flags
	event_create,     // flags -> event
	event_destroy,    // event
	event_record,     // event, stream
	event_query,
	event_elapsed, // start, end -> nanoseconds
	begin_capture, // stream, mode
	end_capture,   // stream -> graph
	graph_destroy, // graph
	graph_nodes,   // graph -> how many; nodes in the payload
	graph_edges,   // graph -> how many; pairs in the payload
	node_type,     // node -> type
	instantiate,   // graph -> executable
	exec_launch,   // executable, stream
	exec_destroy,
	exec_update,     // executable, graph
	module_load,     // image in the payload -> module; the reason in the payload
	module_unload,   // module
	module_function, // module; name in the payload -> function, About; parameters in the payload
	function_shared, // function, bytes of dynamic shared memory at most
	launch,          // function, grid, block, shared, stream; arguments in the payload
	peer,            // peer, on
};

struct Request {
	Call call;
	uint32_t bytes; // of the payload, which follows
	int32_t device; // the current one
	int32_t thread;
	int32_t capture_mode; // of the thread
	int32_t unused;
	uint64_t words[10];
};

struct Reply {
	int32_t result;
	uint32_t bytes; // of the payload, which follows
	uint64_t words[6];
};

// How a copy of a graph with pageable memory goes.
enum Way : uint64_t { way_in, way_out, way_host };

// Errand is what the server wants of the user's process, which answers with one byte.
struct Errand {
	uint32_t kind; // 0: a function and its argument; 1: memory to the last slot; 2: back; 3: memory to memory
	uint32_t unused;
	uint64_t a, b, bytes;
};

// A slot takes bytes from and to pageable memory.
constexpr size_t slot_bytes = 1 << 20;
constexpr unsigned slots = 16; // of calls; one more is for errands

struct Slot {
	std::atomic<uint32_t> done;
	int32_t result;
};

struct Board {
	Slot slot[slots + 1];
};
constexpr size_t board_bytes = 4096 + (slots + 1) * slot_bytes;
inline char *slot_data(Board *board, unsigned i) { return reinterpret_cast<char *>(board) + 4096 + i * slot_bytes; }

// Addresses of memory, the same in both processes. Each device has a window; pinned memory has one more. They lie above
// those among which Go's runtime chooses its heap's, and below those of programs.
constexpr size_t window = size_t(1) << 38;
constexpr unsigned most_devices = 16;
constexpr size_t pinned_window = size_t(1) << 36;
inline uintptr_t windows(Dialect dialect) {
	return dialect == Dialect::cuda ? uintptr_t(0x400000000000) : uintptr_t(0x480000000000);
}
inline uintptr_t device_window(Dialect dialect, unsigned device) { return windows(dialect) + device * window; }
inline uintptr_t pinned_base(Dialect dialect) { return windows(dialect) + most_devices * window; }

// Descriptors of the server: calls, errands, pinned memory, the board.
enum { fd_calls = 3, fd_errands = 4, fd_pinned = 5, fd_board = 6 };

// Limits are the vendors'.
constexpr unsigned most_queues = 128; // of a device
constexpr uint64_t most_threads = 1024, most_y = 65535, most_x = 0x7fffffff;
inline size_t plain_shared(Dialect dialect) { return dialect == Dialect::cuda ? 48 << 10 : 64 << 10; }
inline size_t most_shared(Dialect dialect) { return dialect == Dialect::cuda ? 227 << 10 : 64 << 10; }

// Flags of streams, events and captures, and types of nodes.
enum { stream_non_blocking = 1, event_disable_timing = 2, event_interprocess = 4, wait_greater = 0, wait_equal = 1 };
enum { mode_global = 0, mode_thread = 1, mode_relaxed = 2 };
enum { capture_none = 0, capture_active = 1, capture_discarded = 2 };
enum Node : int32_t {
	node_kernel = 0,
	node_copy = 1,
	node_fill = 2,
	node_host = 3,
	node_empty = 5,
	node_wait_cuda = 12,
	node_wait_hip = 14
};

} // namespace emulated
