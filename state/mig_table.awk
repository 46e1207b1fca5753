# Makes mig_table.c from a profile list with the columns
#   gpu_model,product_regex,profile,profile_id,memory_gb_label,memory_mib,compute_slices,
#   memory_slices,max_instances,placements,placement_size,source
#   awk -F, -f state/mig_table.awk state/mig_measured.csv profiles.csv >state/mig_table.c
# Rows of the first file, read from drivers of our own, take the place of those of the same model and profile.
# An empty column means unknown. Without memory slices the grid has one unit a compute slice: a
# stand-in only, since nothing is placed as long as the starts are unknown.

function text(s) { gsub(/\\/, "\\\\", s); gsub(/"/, "\\\"", s); return "\"" s "\"" }

function attrs(name,    a)
{
	a = ""
	if (name ~ /\+me\.all/) a = a "|ST_MIG_ME_ALL"
	else if (name ~ /\+me/) a = a "|ST_MIG_ME"
	if (name ~ /-me/) a = a "|ST_MIG_NO_ME"
	if (name ~ /\+gfx/) a = a "|ST_MIG_GFX"
	return a == "" ? "0" : substr(a, 2)
}

function flush_model(    i)
{
	if (model == "")
		return
	printf "\t{\n\t\t.product_regex = %s,\n\t\t.mem_mib = %d,\n", text(regex), largest_mib
	printf "\t\t.geometry = {\n\t\t\t.model = %s,\n", text(model)
	printf "\t\t\t.compute_total = %d,\n\t\t\t.units_total = %d,\n", compute, units
	printf "\t\t\t.profile_count = %d,\n\t\t\t.profiles = {\n", n
	for (i = 0; i < n; i++)
		printf "%s", row[i]
	printf "\t\t\t},\n\t\t},\n\t},\n"
}

BEGIN {
	print "/* MIG geometries by product. Made by mig_table.awk; not edited by hand."
	print " *"
	print " * Sources: the MIG user guide's tables and print-outs of `nvidia-smi mig -lgip` and"
	print " * `-lgipp` (starts of A30, A100, H100 80/94 GB and RTX PRO 6000), what we read from drivers"
	print " * ourselves (mig_measured.csv: H200), documented profile lists for the rest. Starts that no"
	print " * source gives are left out: such a profile is placed only where the node reports them. */"
	print "#include \"state/mig_internal.h\""
	print ""
	print "/* clang-format off */"
	print "const struct st_mig_entry st_mig_entries[] = {"
}

FNR == 1 { next }

NR == FNR { ours[$1, $3] = $0; next }

($1, $3) in ours { $0 = ours[$1, $3] }

{
	if ($1 != model) {
		flush_model()
		model = $1; regex = $2; n = 0; bit = 0; compute = 0; units = 0; largest = -1
	}
	size = $8 == "" ? $7 : $8
	count = $10 == "" ? 0 : split($10, starts, ";")
	list = ""
	for (i = 1; i <= count; i++)
		list = list (i > 1 ? ", " : "") starts[i]
	row[n] = sprintf("\t\t\t\t{%s, %d, %d, %d, %d, %d, %s, %d, {%s}, %d},\n", text($3),
		$4 == "" ? -1 : $4, $6 == "" ? 0 : $6, $7, size, $9, attrs($3), count,
		count ? list : "0", bit)
	n++
	bit += count
	if ($7 + 0 > compute) compute = $7 + 0
	if (size + 0 > units) units = size + 0
	mib = $6 == "" ? $5 * 1024 : $6 + 0
	if (mib > largest) { largest = mib; largest_mib = mib }
}

END {
	flush_model()
	print "};"
	print ""
	print "const size_t st_mig_entry_count = sizeof(st_mig_entries) / sizeof(st_mig_entries[0]);"
}
