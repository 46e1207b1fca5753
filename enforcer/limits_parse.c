#include "enforcer/limits_parse.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/quantity.h"
#include "enforcer/hook.h"

#define MIB_MAX (INT64_MAX >> 20)

/* "4096 MiB", "max"; false for others. */
static bool parse_value(const char *s, size_t len, int64_t *ret)
{
	char digits[24];
	size_t n = 0;

	while (len > 0 && (s[len - 1] == ' ' || s[len - 1] == '\r'))
		len--;
	while (len > 0 && s[0] == ' ') {
		s++;
		len--;
	}
	if (len >= 3 && memcmp(s, "max", 3) == 0 &&
	    (len == 3 || (len == 7 && memcmp(s + 3, " MiB", 4) == 0))) {
		*ret = EN_LIMIT_NONE;
		return true;
	}
	while (n < len && n < sizeof(digits) - 1 && s[n] >= '0' && s[n] <= '9') {
		digits[n] = s[n];
		n++;
	}
	digits[n] = '\0';
	if (n == 0 || len - n != 4 || memcmp(s + n, " MiB", 4) != 0)
		return false;
	return integer_parse(digits, 0, MIB_MAX, ret, NULL) == 0;
}

/* The first line as a message may show it. */
static void show(const char *text, size_t len, char ret[100])
{
	size_t n = 0;

	while (n < len && n < 99 && text[n] != '\n') {
		ret[n] = text[n] >= ' ' && text[n] < 127 ? text[n] : '?';
		n++;
	}
	ret[n] = '\0';
}

int limits_parse(const char *text, size_t len, struct limits_seen *ret, struct err *err)
{
	static const char *const keys[] = {"soft limit:", "hard limit:", "current used:"};
	int64_t value[3] = {0};
	bool seen[3] = {false};
	char first[100];

	for (size_t at = 0; at < len;) {
		const char *line = text + at, *end = memchr(line, '\n', len - at);
		size_t n = end != NULL ? (size_t)(end - line) : len - at;

		for (size_t i = 0; i < 3; i++) {
			size_t k = strlen(keys[i]);

			if (n < k || memcmp(line, keys[i], k) != 0)
				continue;
			if (seen[i] || !parse_value(line + k, n - k, &value[i]))
				return err_set(err, ERR_INVALID,
					       "\"%s\" of nvidia-smi is not understood", keys[i]);
			seen[i] = true;
		}
		at += n + 1;
	}
	show(text, len, first);
	for (size_t i = 0; i < 3; i++) {
		if (!seen[i])
			return err_set(err, ERR_INVALID, "nvidia-smi prints no \"%s\" but \"%s\"",
				       keys[i], first);
	}
	if (value[0] == EN_LIMIT_NONE || value[2] == EN_LIMIT_NONE)
		return err_set(err, ERR_INVALID, "\"max\" of nvidia-smi is not understood");
	*ret = (struct limits_seen){
		.soft_mib = value[0], .hard_mib = value[1], .used_mib = value[2]};
	return 0;
}
