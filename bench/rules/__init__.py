"""Long runs and measurements of `viewsweep rules`, all on a PostgreSQL of their own.

python -m bench.rules campaign [--views 200] [--statements 50000] [--seed 1] [--planted]
python -m bench.rules writers [--minutes 10] [--writers 8] [--without-turns]
python -m bench.rules cost [--rows 100000]
"""
