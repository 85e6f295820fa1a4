// The server: the devices of one process. One thread answers calls, each queue of a device has one for its work.
#pragma once

#include <map>
#include <string>

#include "allocator.h"
#include "graphs.h"
#include "settings.h"

namespace emulated {

using Handle = uint64_t;

struct Device {
	Allocator memory;
	Queue queue[most_queues];
	unsigned streams = 0;               // made so far
	std::atomic<int32_t> lost{success}; // why nothing works any more
	std::atomic<uint64_t> kernels{0};
	int memory_file = -1;
};

struct Stream {
	int device;
	Queue *queue;
	std::shared_ptr<std::atomic<uint64_t>> waiting = std::make_shared<std::atomic<uint64_t>>(0); // work that isn't done
	std::shared_ptr<Capture> capture{};
	Place place{}; // in the capture
};

struct Event {
	int device;
	bool timed;
	std::shared_ptr<Mark> mark{};       // of the last record
	std::shared_ptr<Capture> capture{}; // if that was captured
	Place place{};
};

// A module that is loaded, until the last work with it is done.
struct Loaded {
	Executor &executor;
	Module *module;
	int device;
	~Loaded() { executor.unload(module); }
};

struct Kernel {
	std::shared_ptr<Loaded> loaded;
	const Function *function;
	size_t dynamic; // shared memory at most
};

// Message is what a call gets, and gives.
struct Message {
	Request request;
	Reply reply{};
	std::string payload;
	uint64_t operator[](size_t i) const { return request.words[i]; }
	uint64_t &out(size_t i) { return reply.words[i]; }
};

class Server {
  public:
	explicit Server(Dialect words);
	int serve();

  private:
	Result answer(Message &m);

	// memory.cpp
	Result allocate(Message &m);
	Result release(uintptr_t at);
	Result pin(Message &m);
	Result unpin(uintptr_t at);
	Result copy(uint64_t to, uint64_t from, size_t bytes, Handle stream);
	Result copy_slot(Message &m, bool in);
	Result copy_later(Message &m);
	Result fill(Message &m);
	void moved(uintptr_t to, uintptr_t from, size_t bytes);
	bool memory(uintptr_t at, size_t bytes) const;
	bool pinned(uintptr_t at) const { return at >= pinned_base(dialect) && at < pinned_base(dialect) + pinned_window; }

	// streams.cpp
	Result stream_create(Message &m);
	Result stream_destroy(Handle h);
	Result stream_query(Handle h);
	Result host_function(Message &m);
	Result wait_value(Message &m);
	Result event_create(Message &m);
	Result event_record(Handle event, Handle stream);
	Result event_query(Handle h);
	Result event_elapsed(Message &m);
	Result stream_wait(Handle stream, Handle event);
	Result fence(Message &m);
	Result passed(uint64_t fence);
	Result enqueue(Handle stream, Node type, Work work);
	void push(Stream &s, Work work, bool always = false);
	void mark(Stream &s, const std::shared_ptr<Mark> &mark);
	void errand(uint32_t kind, uint64_t a, uint64_t b, uint64_t bytes);
	void lose(int device, Result why);

	// captures.cpp
	Result begin_capture(Message &m);
	Result end_capture(Message &m);
	Result graph_nodes(Message &m);
	Result graph_edges(Message &m);
	Result node_type(Message &m);
	Result instantiate(Message &m);
	Result exec_launch(Handle exec, Handle stream);
	Result exec_update(Handle exec, Handle graph);
	bool ends_captures(const Request &r);

	// kernels.cpp
	Result module_load(Message &m);
	Result module_unload(Handle h);
	Result module_function(Message &m);
	Result function_shared(Handle h, size_t bytes);
	Result launch(Message &m);
	void run(int device, const std::shared_ptr<Loaded> &loaded, const Launch &launch);

	Device *device(const Request &r) {
		return r.device >= 0 && size_t(r.device) < settings.devices ? &devices[r.device] : nullptr;
	}
	template <typename T> static T *find(std::map<Handle, T> &all, Handle h) {
		auto i = all.find(h);
		return i == all.end() ? nullptr : &i->second;
	}
	template <typename T> Handle add(std::map<Handle, T> &all, T x) {
		last += 16;
		all.emplace(last, std::move(x));
		return last;
	}

	const Dialect dialect;
	const Settings settings;
	std::unique_ptr<Executor> executor;
	Board *board;
	Allocator pins;
	Device devices[most_devices];
	std::mutex on_errand;
	Handle last = 0x10000;
	std::map<Handle, Stream> streams;
	std::map<Handle, Event> events;
	std::map<Handle, std::shared_ptr<Graph>> graphs, execs;
	std::map<Handle, std::shared_ptr<Loaded>> modules;
	std::map<Handle, Kernel> kernels;
	std::map<uint64_t, std::vector<std::pair<Queue *, uint64_t>>> fences;
	std::set<std::shared_ptr<Capture>> captures;
};

} // namespace emulated
