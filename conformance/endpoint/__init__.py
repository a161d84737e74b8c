"""A running endpoint, judged over HTTP and, where there is one, by its engine's record.

`driver` asks and listens, `promise` says what a limiter promised in numbers, `verdicts` judges
what a client saw, `record` reads what the engine noted and `record_verdicts` judges that. Nothing
here imports vLLM; only `driver` needs the `openai` package.
"""
