#include "state/request.h"

#include <string.h>

#include "base/arith.h"

static int32_t fraction_mib(int32_t alloc_mib, int32_t nano)
{
	int64_t mib = arith_mul_div_floor(alloc_mib < 0 ? 0 : alloc_mib, nano, ST_NANO);

	return (int32_t)arith_min(arith_max(mib, 1), INT32_MAX);
}

int32_t st_item_request_mib(const struct st_item *it, int32_t alloc_mib)
{
	return it->request_mib > 0 ? it->request_mib : fraction_mib(alloc_mib, it->request_nano);
}

int32_t st_item_limit_mib(const struct st_item *it, int32_t alloc_mib)
{
	if (it->limit_mib > 0)
		return it->limit_mib;
	if (it->limit_nano > 0)
		return fraction_mib(alloc_mib, it->limit_nano);
	return st_item_request_mib(it, alloc_mib);
}

bool st_item_mig_takes(const struct st_item *it, const struct st_mig_geometry *g, int profile)
{
	if (it->profile[0] != '\0')
		return profile >= 0 && st_mig_profile_find(g, it->profile) == profile;
	return st_mig_serves(g, profile, it->request_mib, it->request_nano);
}

int st_item_mig_profile(const struct st_item *it, const struct st_mig_geometry *g)
{
	return it->profile[0] != '\0' ? st_mig_profile_find(g, it->profile)
				      : st_mig_smallest(g, it->request_mib, it->request_nano);
}

static const char *const mode_names[ST_MODE_COUNT] = {
	[ST_MODE_FREE] = "free",
	[ST_MODE_TIME_SLICING] = "time-slicing",
	[ST_MODE_SM_SHARING] = "sm-sharing",
	[ST_MODE_EXCLUSIVE] = "exclusive",
	[ST_MODE_MIG] = "mig",
};

const char *st_mode_name(enum st_mode m)
{
	return m < ST_MODE_COUNT ? mode_names[m] : "unknown";
}

int st_mode_parse(const char *s)
{
	for (int m = 0; m < ST_MODE_COUNT; m++)
		if (strcmp(s, mode_names[m]) == 0)
			return m;
	return -1;
}
