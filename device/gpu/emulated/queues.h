// The hardware queues of a device, which its streams share: work runs in order, and a wait holds up what is behind it,
// of other streams too.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "protocol.h"

namespace emulated {

using Clock = std::chrono::steady_clock;
using Work = std::function<void()>;

// A mark is a place in a stream, which is passed once.
class Mark {
  public:
	void pass() {
		at = Clock::now();
		done = true;
		done.notify_all();
	}
	void wait() const { done.wait(false); }
	bool passed() const { return done; }
	Clock::time_point at; // if it's passed

  private:
	std::atomic<bool> done{false};
};

class Queue {
  public:
	void push(Work work) {
		{
			std::lock_guard lock(mutex);
			work_list.push_back(std::move(work));
			if (pushed++ == 0)
				std::thread([this] { run(); }).detach();
		}
		ready.notify_one();
	}
	std::atomic<uint64_t> pushed{0}, finished{0};
	unsigned streams = 0; // that have it

  private:
	void run() {
		for (;;) {
			std::unique_lock lock(mutex);
			ready.wait(lock, [this] { return !work_list.empty(); });
			Work work = std::move(work_list.front());
			work_list.pop_front();
			lock.unlock();
			work();
			work = nullptr; // what it holds goes before it counts as finished
			finished++;
		}
	}

	std::mutex mutex;
	std::condition_variable ready;
	std::deque<Work> work_list;
};

} // namespace emulated
