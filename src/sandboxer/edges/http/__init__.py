"""The HTTP edge translates requests into use cases and their results into answers. It decides nothing.

FastAPI is loaded here, before any module of the edge asks for it, and spared what few starts need. Its models
of an OpenAPI document are built with the first document. And it would ask of each type whether it is a model
of pydantic's first version, which it would load for that: we have none.
"""

from pydantic import BaseModel

BaseModel.model_config["defer_build"] = True
try:
    import fastapi.utils
finally:
    del BaseModel.model_config["defer_build"]

vars(fastapi.utils)["annotation_is_pydantic_v1"] = lambda annotation: False
