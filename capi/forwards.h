// Functions of chorus.h that only pass their arguments on. Written by capi/gen; don't edit.

EXPORT chorus_status chorus_alloc(int64_t bytes, int32_t zero, void **memory) {
	CALLS(goAlloc(bytes, zero, memory));
}

EXPORT chorus_status chorus_free(void *memory) {
	CALLS(goFree(memory));
}

EXPORT chorus_status chorus_device_count(const char *type, int32_t *count) {
	CALLS(goDeviceCount((char *)type, count));
}

EXPORT chorus_status chorus_compile_apart(const char *const *command, int32_t n) {
	CALLS(goCompileApart((char **)command, n));
}

EXPORT chorus_status chorus_device_open(const char *name, chorus_device *device) {
	CALLS(goDeviceOpen((char *)name, device));
}

EXPORT chorus_status chorus_device_get(chorus_device device, chorus_device_info *info) {
	CALLS(goDeviceGet(device, info));
}

EXPORT chorus_status chorus_device_peer_capable(chorus_device device, chorus_device peer, int32_t *capable) {
	CALLS(goDevicePeerCapable(device, peer, capable));
}

EXPORT chorus_status chorus_cache_alloc(chorus_device device, int64_t bytes, chorus_stream stream, void **memory, void **view) {
	CALLS(goCacheAlloc(device, bytes, stream, memory, view));
}

EXPORT chorus_status chorus_cache_free(chorus_device device, void *memory) {
	CALLS(goCacheFree(device, memory));
}

EXPORT chorus_status chorus_cache_uses(chorus_device device, void *memory, chorus_stream stream) {
	CALLS(goCacheUses(device, memory, stream));
}

EXPORT chorus_status chorus_pin(chorus_device device, int64_t bytes, void **memory) {
	CALLS(goPin(device, bytes, memory));
}

EXPORT chorus_status chorus_unpin(void *memory) {
	CALLS(goUnpin(memory));
}

EXPORT chorus_status chorus_device_memory_stats(chorus_device device, chorus_figure *figures, int32_t room, int32_t *n) {
	CALLS(goDeviceMemoryStats(device, figures, room, n));
}

EXPORT chorus_status chorus_device_host_stats(chorus_device device, chorus_figure *figures, int32_t room, int32_t *n) {
	CALLS(goDeviceHostStats(device, figures, room, n));
}

EXPORT chorus_status chorus_device_empty_host_cache(chorus_device device) {
	BLOCKS(goDeviceEmptyHostCache(device, checked));
}

EXPORT chorus_status chorus_stream_create(chorus_device device, int32_t priority, chorus_stream *stream) {
	CALLS(goStreamCreate(device, priority, stream));
}

EXPORT chorus_status chorus_stream_release(chorus_stream stream) {
	CALLS(goStreamRelease(stream));
}

EXPORT chorus_status chorus_stream_adopt(chorus_device device, uint64_t native, chorus_stream *stream) {
	CALLS(goStreamAdopt(device, native, stream));
}

EXPORT chorus_status chorus_stream_native(chorus_stream stream, uint64_t *native) {
	CALLS(goStreamNative(stream, native));
}

EXPORT chorus_status chorus_stream_set_current(chorus_stream stream) {
	CALLS(goStreamSetCurrent(stream));
}

EXPORT chorus_status chorus_stream_get(chorus_stream stream, chorus_stream_info *info) {
	CALLS(goStreamGet(stream, info));
}

EXPORT chorus_status chorus_stream_query(chorus_stream stream) {
	CALLS(goStreamQuery(stream));
}

EXPORT chorus_status chorus_device_synchronize(chorus_device device, int64_t timeout_ns) {
	BLOCKS(goDeviceSynchronize(device, timeout_ns, checked));
}

EXPORT chorus_status chorus_event_synchronize(chorus_event event, int64_t timeout_ns) {
	BLOCKS(goEventSynchronize(event, timeout_ns, checked));
}

EXPORT chorus_status chorus_stream_wait_stream(chorus_stream stream, chorus_stream other) {
	CALLS(goStreamWaitStream(stream, other));
}

EXPORT chorus_status chorus_stream_wait_event(chorus_stream stream, chorus_event event) {
	CALLS(goStreamWaitEvent(stream, event));
}

EXPORT chorus_status chorus_stream_copy(chorus_stream stream, void *to, const void *from, int64_t bytes) {
	CALLS(goStreamCopy(stream, to, (void *)from, bytes));
}

EXPORT chorus_status chorus_stream_task(chorus_stream stream, const char *name, const chorus_span *operands, int32_t n, chorus_task_fn task, chorus_over_fn over, void *user) {
	CALLS(goStreamTask(stream, (char *)name, (chorus_span *)operands, n, task, over, user));
}

EXPORT chorus_status chorus_stream_random(chorus_stream stream, chorus_random *random) {
	CALLS(goStreamRandom(stream, random));
}

EXPORT chorus_status chorus_random_set(chorus_device device, uint64_t seed, uint64_t offset) {
	CALLS(goRandomSet(device, seed, offset));
}

EXPORT chorus_status chorus_random_get(chorus_device device, uint64_t *seed, uint64_t *offset) {
	CALLS(goRandomGet(device, seed, offset));
}

EXPORT chorus_status chorus_random_take(chorus_stream stream, chorus_draw *draw) {
	CALLS(goRandomTake(stream, draw));
}

EXPORT chorus_status chorus_generator_create(chorus_device device, uint64_t seed, uint64_t offset, chorus_generator *generator) {
	CALLS(goGeneratorCreate(device, seed, offset, generator));
}

EXPORT chorus_status chorus_generator_set(chorus_generator generator, uint64_t seed, uint64_t offset) {
	CALLS(goGeneratorSet(generator, seed, offset));
}

EXPORT chorus_status chorus_generator_get(chorus_generator generator, uint64_t *seed, uint64_t *offset) {
	CALLS(goGeneratorGet(generator, seed, offset));
}

EXPORT chorus_status chorus_generator_release(chorus_generator generator) {
	CALLS(goGeneratorRelease(generator));
}

EXPORT chorus_status chorus_event_create(int32_t flags, chorus_event *event) {
	CALLS(goEventCreate(flags, event));
}

EXPORT chorus_status chorus_event_handle(chorus_event event, chorus_device device, void *handle, int64_t room, int64_t *bytes) {
	CALLS(goEventHandle(event, device, handle, room, bytes));
}

EXPORT chorus_status chorus_event_open(chorus_device device, const void *handle, int64_t bytes, chorus_event *event) {
	CALLS(goEventOpen(device, (void *)handle, bytes, event));
}

EXPORT chorus_status chorus_event_record(chorus_event event, chorus_stream stream) {
	CALLS(goEventRecord(event, stream));
}

EXPORT chorus_status chorus_event_release(chorus_event event) {
	CALLS(goEventRelease(event));
}

EXPORT chorus_status chorus_event_get(chorus_event event, chorus_event_info *info) {
	CALLS(goEventGet(event, info));
}

EXPORT chorus_status chorus_event_query(chorus_event event) {
	CALLS(goEventQuery(event));
}

EXPORT chorus_status chorus_event_elapsed(chorus_event start, chorus_event end, double *ms) {
	CALLS(goEventElapsed(start, end, ms));
}

EXPORT chorus_status chorus_graph_pool(chorus_graph graph, uint64_t pool[2]) {
	CALLS(goGraphPool(graph, pool));
}

EXPORT chorus_status chorus_graph_dump(chorus_graph graph, const char *path) {
	CALLS(goGraphDump(graph, (char *)path));
}

EXPORT chorus_status chorus_graph_replay(chorus_graph graph, chorus_stream stream) {
	CALLS(goGraphReplay(graph, stream));
}

EXPORT chorus_status chorus_graph_release(chorus_graph graph) {
	CALLS(goGraphRelease(graph));
}

EXPORT chorus_status chorus_device_set_fraction(chorus_device device, double fraction) {
	CALLS(goDeviceSetFraction(device, fraction));
}

EXPORT chorus_status chorus_device_record_history(chorus_device device, int64_t n) {
	CALLS(goDeviceRecordHistory(device, n));
}

EXPORT chorus_status chorus_device_snapshot(chorus_device device, const char *path) {
	CALLS(goDeviceSnapshot(device, (char *)path));
}

EXPORT chorus_status chorus_cache_came(chorus_device device, void *memory, const uint32_t *sites, int32_t n) {
	CALLS(goCacheCame(device, memory, (uint32_t *)sites, n));
}

EXPORT chorus_status chorus_pool_new(uint64_t pool[2]) {
	CALLS(goPoolNew(pool));
}

EXPORT chorus_status chorus_pool_of(const char *backend, chorus_device device, uint64_t pool[2]) {
	CALLS(goPoolOf((char *)backend, device, pool));
}

EXPORT chorus_status chorus_library_open(const char *backend) {
	CALLS(goLibraryOpen((char *)backend));
}

EXPORT chorus_status chorus_pool_begin(chorus_device device, const uint64_t pool[2]) {
	CALLS(goPoolBegin(device, (uint64_t *)pool));
}

EXPORT chorus_status chorus_memory_handle(chorus_device device, const void *memory, void *handle, int64_t room, int64_t *bytes, int64_t *offset) {
	CALLS(goMemoryHandle(device, (void *)memory, handle, room, bytes, offset));
}

EXPORT chorus_status chorus_memory_open(chorus_device device, const void *handle, int64_t bytes, void **memory) {
	CALLS(goMemoryOpen(device, (void *)handle, bytes, memory));
}

EXPORT chorus_status chorus_memory_close(chorus_device device, void *memory) {
	CALLS(goMemoryClose(device, memory));
}

EXPORT chorus_status chorus_profile_start(const char *type) {
	CALLS(goProfileStart((char *)type));
}

EXPORT chorus_status chorus_profile_stop(const char *type, chorus_activity_fn each, void *user) {
	CALLS(goProfileStop((char *)type, each, user));
}

EXPORT chorus_status chorus_profile_range(const char *type, const char *name, int32_t thread, int64_t start_ns, int64_t end_ns) {
	CALLS(goProfileRange((char *)type, (char *)name, thread, start_ns, end_ns));
}

EXPORT chorus_status chorus_profile_write(const char *type, const char *path) {
	CALLS(goProfileWrite((char *)type, (char *)path));
}

EXPORT chorus_status chorus_attributes_of(chorus_device device, const void *memory, chorus_attributes *attributes) {
	CALLS(goAttributesOf(device, (void *)memory, attributes));
}

EXPORT chorus_status chorus_view(chorus_device device, const void *memory, int64_t bytes, void **view) {
	CALLS(goView(device, (void *)memory, bytes, view));
}

EXPORT chorus_status chorus_stream_pooled(chorus_device device, int32_t priority, chorus_stream *stream) {
	CALLS(goStreamPooled(device, priority, stream));
}

EXPORT chorus_status chorus_stream_of(chorus_device device, int64_t id, chorus_stream *stream) {
	CALLS(goStreamOf(device, id, stream));
}

EXPORT chorus_status chorus_stream_enter(chorus_stream stream, const char *name) {
	CALLS(goStreamEnter(stream, (char *)name));
}

EXPORT chorus_status chorus_stream_turn(chorus_stream stream, const char *name) {
	CALLS(goStreamTurn(stream, (char *)name));
}

EXPORT chorus_status chorus_stream_leave(chorus_stream stream) {
	CALLS(goStreamLeave(stream));
}

EXPORT chorus_status chorus_kernel_find(int32_t kind, const char *name, int32_t *op) {
	CALLS(goKernelFind(kind, (char *)name, op));
}

EXPORT chorus_status chorus_kernel_run(chorus_stream stream, const chorus_kernel *kernel) {
	CALLS(goKernelRun(stream, (chorus_kernel *)kernel));
}

EXPORT chorus_status chorus_source_add(const char *text, int32_t *source) {
	CALLS(goSourceAdd((char *)text, source));
}

EXPORT chorus_status chorus_source_run(chorus_stream stream, const chorus_source *run) {
	CALLS(goSourceRun(stream, (chorus_source *)run));
}

EXPORT chorus_status chorus_kernel_get(chorus_device device, chorus_kernel_info *info) {
	CALLS(goKernelGet(device, info));
}

EXPORT chorus_status chorus_tune_set(int32_t enabled, int32_t tuning, int32_t milliseconds, int32_t iterations) {
	CALLS(goTuneSet(enabled, tuning, milliseconds, iterations));
}

EXPORT chorus_status chorus_tune_add(const char *line) {
	CALLS(goTuneAdd((char *)line));
}

EXPORT chorus_status chorus_tune_results(const char **text) {
	CALLS(goTuneResults((char **)text));
}

EXPORT chorus_status chorus_fft_run(chorus_stream stream, const chorus_fft *fft) {
	CALLS(goFftRun(stream, (chorus_fft *)fft));
}

EXPORT chorus_status chorus_fft_get(chorus_device device, chorus_fft_info *info) {
	CALLS(goFftGet(device, info));
}

EXPORT chorus_status chorus_fft_plans(chorus_device device, int64_t most) {
	CALLS(goFftPlans(device, most));
}

EXPORT chorus_status chorus_solve_run(chorus_stream stream, const chorus_solve *solve) {
	CALLS(goSolveRun(stream, (chorus_solve *)solve));
}

EXPORT chorus_status chorus_solve_get(chorus_device device, int32_t look) {
	CALLS(goSolveGet(device, look));
}

EXPORT chorus_status chorus_blas_handle(chorus_stream stream, void **handle) {
	CALLS(goBlasHandle(stream, handle));
}

EXPORT chorus_status chorus_store_from_callbacks(const chorus_store_callbacks *callbacks, chorus_store *store) {
	CALLS(goStoreFromCallbacks((chorus_store_callbacks *)callbacks, store));
}

EXPORT chorus_status chorus_store_open(const char *address, int64_t timeout_ns, chorus_store *store) {
	BLOCKS(goStoreOpen((char *)address, timeout_ns, store, checked));
}

EXPORT chorus_status chorus_store_release(chorus_store store) {
	CALLS(goStoreRelease(store));
}

EXPORT chorus_status chorus_comm_create(const chorus_comm_options *options, chorus_comm *comm) {
	BLOCKS(goCommCreate((chorus_comm_options *)options, comm, checked));
}

EXPORT chorus_status chorus_comm_get(chorus_comm comm, chorus_comm_info *info) {
	CALLS(goCommGet(comm, info));
}

EXPORT chorus_status chorus_comm_bind(chorus_comm comm, chorus_device device) {
	CALLS(goCommBind(comm, device));
}

EXPORT chorus_status chorus_comm_status(chorus_comm comm) {
	CALLS(goCommStatus(comm));
}

EXPORT chorus_status chorus_comm_split(chorus_comm comm, const chorus_split_options *options, chorus_comm *part) {
	BLOCKS(goCommSplit(comm, (chorus_split_options *)options, part, checked));
}

EXPORT chorus_status chorus_comm_handle(chorus_comm comm, const char **handle) {
	CALLS(goCommHandle(comm, (char **)handle));
}

EXPORT chorus_status chorus_comm_reconfigure(chorus_comm comm, const chorus_reconfigure_options *options, chorus_comm *renewed) {
	BLOCKS(goCommReconfigure(comm, (chorus_reconfigure_options *)options, renewed, checked));
}

EXPORT chorus_status chorus_comm_regroup(chorus_comm comm, const chorus_regroup_options *options, chorus_comm *renewed) {
	BLOCKS(goCommRegroup(comm, (chorus_regroup_options *)options, renewed, checked));
}

EXPORT chorus_status chorus_comm_set_timeout(chorus_comm comm, int64_t timeout_ns) {
	CALLS(goCommSetTimeout(comm, timeout_ns));
}

EXPORT chorus_status chorus_comm_set_hints(chorus_comm comm, const chorus_hint *hints, int32_t n) {
	CALLS(goCommSetHints(comm, (chorus_hint *)hints, n));
}

EXPORT chorus_status chorus_comm_abort(chorus_comm comm, const char *reason) {
	CALLS(goCommAbort(comm, (char *)reason));
}

EXPORT chorus_status chorus_comm_finalize(chorus_comm comm, int64_t timeout_ns) {
	BLOCKS(goCommFinalize(comm, timeout_ns, checked));
}

EXPORT chorus_status chorus_comm_leave(chorus_comm comm, const char *why, int64_t timeout_ns) {
	BLOCKS(goCommLeave(comm, (char *)why, timeout_ns, checked));
}

EXPORT chorus_status chorus_comm_release(chorus_comm comm) {
	CALLS(goCommRelease(comm));
}

EXPORT chorus_status chorus_work_expire(chorus_work work, int64_t elapsed_ns) {
	BLOCKS(goWorkExpire(work, elapsed_ns, checked));
}

EXPORT chorus_status chorus_work_test(chorus_work work) {
	CALLS(goWorkTest(work));
}

EXPORT chorus_status chorus_work_get(chorus_work work, chorus_work_info *info) {
	CALLS(goWorkGet(work, info));
}

EXPORT chorus_status chorus_work_sources(chorus_work work, int32_t *sources, int32_t n) {
	CALLS(goWorkSources(work, sources, n));
}

EXPORT chorus_status chorus_work_notify(chorus_work work, chorus_done_fn done, void *user) {
	CALLS(goWorkNotify(work, done, user));
}

EXPORT chorus_status chorus_next_done(int64_t timeout_ns, chorus_work *work) {
	BLOCKS(goNextDone(timeout_ns, work, checked));
}

EXPORT chorus_status chorus_wake_done(void) {
	CALLS(goWakeDone());
}

EXPORT chorus_status chorus_work_cancel(chorus_work work) {
	CALLS(goWorkCancel(work));
}

EXPORT chorus_status chorus_work_release(chorus_work work) {
	CALLS(goWorkRelease(work));
}

EXPORT chorus_status chorus_window_create(chorus_comm comm, void *data, int64_t count, int32_t dtype, chorus_window *window) {
	BLOCKS(goWindowCreate(comm, data, count, dtype, window, checked));
}

EXPORT chorus_status chorus_window_map(chorus_window window, int32_t rank, void **data) {
	CALLS(goWindowMap(window, rank, data));
}

EXPORT chorus_status chorus_window_get(chorus_window window, int32_t rank, chorus_window_peer *peer) {
	CALLS(goWindowGet(window, rank, peer));
}

EXPORT chorus_status chorus_window_close(chorus_window window) {
	BLOCKS(goWindowClose(window, checked));
}

EXPORT chorus_status chorus_on_abort(chorus_comm comm, chorus_abort_fn broken, void *user, chorus_hook *hook) {
	CALLS(goOnAbort(comm, broken, user, hook));
}

EXPORT chorus_status chorus_on_completion(chorus_comm comm, chorus_completion_fn done, void *user, chorus_hook *hook) {
	CALLS(goOnCompletion(comm, done, user, hook));
}

EXPORT chorus_status chorus_hook_remove(chorus_hook hook) {
	CALLS(goHookRemove(hook));
}
