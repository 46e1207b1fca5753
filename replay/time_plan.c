#include "replay/time_plan.h"

#include <string.h>

int rp_time_parse(const struct rp_time_args *a, const struct rp_inputs *in,
		  struct rp_time_plan *ret, bool *ret_over_time, struct err *err)
{
	static const char *const queues[] = {"backfill", "fifo", "none"};
	struct rp_time_plan p = {.how = RP_MADE_DEFAULT};
	int queue = 0;

	*ret_over_time = a->time != NULL;
	if (a->time == NULL)
		return a->queue != NULL || a->arrivals > 0 || a->load_nano > 0 || a->median_s > 0 ||
				       a->max_wait_s > 0
			       ? err_set(err, ERR_INVALID,
					 "--queue, --arrivals, --load, --stay and --max-wait want "
					 "--time")
			       : 0;
	p.made = strcmp(a->time, "trace") != 0;
	p.how.own_stays = strcmp(a->time, "stays") == 0;
	if (p.made && !p.how.own_stays && strcmp(a->time, "made") != 0)
		return err_set(err, ERR_INVALID, "--time: \"%s\" is not trace, stays or made",
			       a->time);
	if (!p.made && (a->arrivals > 0 || a->load_nano > 0 || a->median_s > 0))
		return err_set(err, ERR_INVALID,
			       "--arrivals, --load and --stay have no meaning with --time trace");
	if (in->order_path != NULL || in->inflate_nano != RP_INFLATE_DEFAULT)
		return err_set(err, ERR_INVALID,
			       "--order and --inflate have no meaning with --time");
	while (a->queue != NULL && queue < 3 && strcmp(a->queue, queues[queue]) != 0)
		queue++;
	if (queue == 3)
		return err_set(err, ERR_INVALID, "--queue: \"%s\" is not backfill, fifo or none",
			       a->queue);
	p.queue = (enum rp_queue)queue;
	p.how.count = (size_t)a->arrivals;
	p.how.load_nano = a->load_nano > 0 ? a->load_nano : p.how.load_nano;
	p.how.median_ms = a->median_s > 0 ? a->median_s * 1000 : p.how.median_ms;
	p.max_wait_ms = a->max_wait_s * 1000;
	*ret = p;
	return 0;
}

int rp_time_arrivals(const struct rp_time_plan *p, const struct rp_trace *t, uint64_t seed,
		     struct rp_timeline *ret, struct err *err)
{
	struct rp_made how = p->how;

	how.seed = seed;
	return p->made ? rp_timeline_made(t, &how, ret, err) : rp_timeline_trace(t, ret, err);
}
