"""The functions that SQL from users may call: those that compute, none that reach outside or eat memory.

`repeat`, `lpad` and their like are left out on purpose: strings are not
counted against DuckDB's memory limit.
"""

from __future__ import annotations

TABLE_FUNCTIONS = frozenset({"range", "generate_series", "unnest"})

LENGTHENING = {"||": 12, "concat": 12, "concat_ws": 12, "replace": 1, "regexp_replace": 1}
"""How many of each one statement may hold: text that doubles and doubles is not counted either."""

AGGREGATES = frozenset(
    """
    any_value approx_count_distinct approx_quantile arg_max arg_max_null arg_min arg_min_null argmax argmin array_agg
    avg bit_and bit_or bit_xor bool_and bool_or corr count count_if count_star countif covar_pop covar_samp entropy
    favg first fsum geomean geometric_mean group_concat histogram kahan_sum kurtosis kurtosis_pop last list listagg
    mad max max_by mean median min min_by mode product quantile quantile_cont quantile_disc regr_avgx regr_avgy
    regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy sem skewness stddev stddev_pop
    stddev_samp string_agg sum sum_no_overflow sumkahan var_pop var_samp variance
    cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank row_number fill
    grouping grouping_id
    """.split()  # noqa: SIM905 - reads better than two hundred quotes
)

SCALARS = frozenset(
    """
    abs acos acosh add age array_contains array_extract array_has array_length ascii asin asinh atan atan2 atanh
    between bin bit_count cardinality cbrt ceil ceiling century char_length character_length chr coalesce concat
    concat_ws constant_or_null contains cos cosh cot current_date current_localtime current_localtimestamp
    current_time current_timestamp date_add date_diff date_part date_sub date_trunc datediff datepart datesub
    datetrunc day dayname dayofmonth dayofweek dayofyear decade degrees divide element_at ends_with epoch epoch_ms
    epoch_ns epoch_us era even exp extract factorial filter floor fmod format_bytes formatreadabledecimalsize
    formatreadablesize gamma gcd get_current_time get_current_timestamp greatest hash hour if ifnull instr isfinite
    isinf isnan isodow isoyear jaccard json_array_length json_contains json_exists json_extract json_extract_path
    json_extract_path_text json_extract_string json_keys json_type json_valid json_value julian lcase lcm least left
    len length levenshtein lgamma list_aggregate list_avg list_contains list_count list_distinct list_element
    list_extract list_filter list_has list_max list_min list_reverse_sort list_slice list_sort list_sum
    list_transform list_value ln log log10 log2 lower ltrim make_date make_time make_timestamp make_timestamptz
    map map_extract map_keys map_values md5 microsecond millennium millisecond minute mod month monthname multiply
    nanosecond nextafter not_ilike_escape not_like_escape like_escape ilike_escape now nullif ord pi pow power
    quarter radians regexp_extract regexp_full_match regexp_matches regexp_replace replace reverse right round
    round_even row rtrim second sign signbit sin sinh split split_part sqrt starts_with strftime strip_accents strlen
    strpos strptime struct_extract struct_pack substr substring subtract suffix prefix tan tanh time_bucket
    timezone to_centuries to_days to_decades to_hours to_microseconds to_millennia to_milliseconds to_minutes
    to_months to_quarters to_seconds to_timestamp to_weeks to_years today transaction_timestamp trim trunc try_strptime
    typeof ucase unnest upper week weekday weekofyear year yearweek xor
    """.split()  # noqa: SIM905 - reads better than two hundred quotes
)
