// The executor: modules, and launches whose blocks are spread over the cores.
#include "executor.h"

#include "module.h"
#include "shadow.h"
#include "worker.h"

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <thread>

namespace emulated {

namespace {

// A Pool has threads that help with launches of several blocks.
class Pool {
  public:
	explicit Pool(unsigned helpers) {
		for (unsigned k = 0; k < helpers; k++)
			threads.emplace_back([this] { help(); });
	}
	~Pool() {
		{
			std::lock_guard<std::mutex> locked(mutex);
			over = true;
		}
		come.notify_all();
		for (auto &t : threads)
			t.join();
	}

	// work runs all blocks of a launch, on the calling thread and on those that are free.
	void work(Run &run) {
		size_t wanted = std::min<uint64_t>(threads.size(), run.blocks - 1);
		Job job{&run, wanted, 0};
		if (wanted > 0) {
			{
				std::lock_guard<std::mutex> locked(mutex);
				jobs.push_back(&job);
			}
			wanted == 1 ? come.notify_one() : come.notify_all();
		}
		Worker::mine().work(run);
		if (wanted == 0)
			return;
		std::unique_lock<std::mutex> locked(mutex);
		jobs.erase(std::remove(jobs.begin(), jobs.end(), &job), jobs.end());
		gone.wait(locked, [&] { return job.at_work == 0; });
	}

  private:
	struct Job {
		Run *run;
		size_t wanted, at_work;
	};

	void help() {
		std::unique_lock<std::mutex> locked(mutex);
		for (;;) {
			come.wait(locked, [&] { return over || !jobs.empty(); });
			if (over)
				return;
			Job *job = jobs.front();
			job->at_work++;
			if (--job->wanted == 0)
				jobs.pop_front();
			locked.unlock();
			Worker::mine().work(*job->run);
			locked.lock();
			job->at_work--;
			gone.notify_all();
		}
	}

	std::mutex mutex;
	std::condition_variable come, gone;
	std::deque<Job *> jobs;
	bool over = false;
	std::vector<std::thread> threads;
};

class Modules : public Executor {
  public:
	explicit Modules(Dialect d)
	    : warp(d == Dialect::hip ? 64 : 32), pool(std::max(1u, std::thread::hardware_concurrency()) - 1) {}

	void allocated(Range range, bool written) override { memory.add(range, written); }
	void freed(Range range) override { memory.remove(range); }
	void written(Range range) override { memory.written(range); }
	void copied(uintptr_t to, uintptr_t from, size_t bytes) override { memory.copied(to, from, bytes); }

	Module *load(const void *image, size_t bytes, std::string &why) override {
		return Module::load(image, bytes, why).release();
	}
	void unload(Module *module) override { delete module; }
	const Function *find(Module *module, const std::string &name) override { return module->find(name); }
	const About &about(const Function *function) override { return function->about; }

	Outcome launch(const Launch &l) override {
		Run run;
		run.launch = &l, run.memory = &memory, run.number = ++launches, run.warp = warp;
		run.blocks = (uint64_t)l.grid.x * l.grid.y * l.grid.z;
		pool.work(run);
		if (run.outcome.fault != Fault::none && only_print) {
			fprintf(stderr, "emulated GPU: %s\n", run.outcome.text.c_str());
			return {};
		}
		return run.outcome;
	}

  private:
	// With EMULATED_GPU_FAULTS=print a launch that fails is one that ends early, and the device goes on.
	static bool print_only() {
		const char *set = getenv("EMULATED_GPU_FAULTS");
		return set != nullptr && strcmp(set, "print") == 0;
	}

	const int warp;
	const bool only_print = print_only();
	Memory memory;
	std::atomic<uint64_t> launches{0};
	Pool pool;
};

} // namespace

std::unique_ptr<Executor> executor(Dialect dialect) { return std::make_unique<Modules>(dialect); }

} // namespace emulated
